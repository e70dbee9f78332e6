// Opening of the datasets of a job's `data` section.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/spec.hpp"

namespace gputrain::data {

struct DatasetSplits {
  std::shared_ptr<const Dataset> train, val, test;  // val and test are null if the job has none
};

/// Opens all datasets of the section, for a model that reads `model` and may start from `pretrained` (a folder or a
/// file; empty: from scratch). Files in the job's own folders are not data. Throws Error(data) for missing or damaged
/// data.
DatasetSplits open_datasets(const DataSpec& spec, const InputSpec& model,
                            const std::vector<std::string>& own_folders = {}, const std::string& pretrained = {});

/// Returns the value of `num_workers: auto` for a rank that may use `cpus` logical CPUs.
int automatic_workers(const Dataset& dataset, at::Device device, int cpus);

}  // namespace gputrain::data

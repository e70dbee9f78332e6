// From the `data` section of a job to its datasets.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/Device.h>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/spec.hpp"

namespace gputrain::data {

struct Datasets {
  std::shared_ptr<const Dataset> train, val, test;  // val and test null when the job has none
};

/// Opens everything the section names, for a model that reads `model`. Throws Error(data) for missing or damaged data.
Datasets open_datasets(const DataSpec& spec, const InputSpec& model);

/// `num_workers: auto` for one rank of `ranks_on_host`.
int automatic_workers(const Dataset& dataset, at::Device device, int ranks_on_host);

}  // namespace gputrain::data

// From the `data` section of a job to its datasets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <c10/core/Device.h>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/spec.hpp"

namespace gputrain::data {

struct Datasets {
  std::shared_ptr<const Dataset> train, val, test;  // val and test null when the job has none
};

/// Opens everything the section names. `longest_sequence` is what the model takes at most; 0: it leaves that to the
/// data; nothing: it takes no text. Throws Error(data) for what is missing or damaged.
Datasets open_datasets(const DataSpec& spec, std::optional<int64_t> longest_sequence);

/// `num_workers: auto` for one rank of `ranks_on_host`.
int automatic_workers(const Dataset& dataset, at::Device device, int ranks_on_host);

}  // namespace gputrain::data

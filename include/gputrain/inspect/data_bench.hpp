// Speed at which a job's training data can be read, stage by stage, and its limit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gputrain/job/job.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

struct DataStage {
  std::string name;  // "read", "decode", "resize", "augment"
  double samples_per_second = 0;
};

struct DataRates {
  std::vector<DataStage> stages;  // stages of Dataset::read(), each alone, on one thread
  double one_thread = 0;          // all of them, samples per second
  double loader = 0;              // rate of the loader with its workers
  double preprocess = 0;          // the copy to the device and the conversion there
  int64_t workers = 0, cpus = 0;
  bool is_cheap = false;  // a read is little more than a copy
};

/// Reads `samples` of the training data in the job's order on one thread, then about as many through the loader. The
/// page cache stays as it is: a second call may find files there.
DataRates time_data(const Job& job, const JobDatasets& datasets, const RankContext& context, int64_t samples);

/// Explains what limits the rate, and which key to change.
std::string data_advice(const DataRates& rates);

}  // namespace gputrain::app

// Numbers that some tasks take from the model as it is before training: Task::reference().
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "gputrain/job/job.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Adds a field for these numbers to the samples, if the task has any.
void add_references(JobDatasets& datasets);

struct ReferenceRequest {
  std::filesystem::path file;                        // source of numbers of the same data and the same model
  std::string split = {};                            // "train", "val" or "test"; empty: all
  bool keeps = true;                                 // true: new numbers go into the file
  std::function<void(const std::string&)> say = {};  // called before work that takes time
};

/// Computes the numbers with the current model. Every rank must call.
void take_references(const Job& job, TrainingSetup& setup, const ReferenceRequest& request);

}  // namespace gputrain::app

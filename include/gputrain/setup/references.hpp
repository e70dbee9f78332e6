// What some tasks take from the model as it is before training: Task::reference().
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "gputrain/job/job.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Gives the samples room for these numbers, if the task has any.
void add_references(JobDatasets& datasets);

struct ReferenceRequest {
  std::filesystem::path file;  // what it has of the same data and the same model is taken from there
  std::string split = {};      // "train", "val" or "test"; empty: all
  bool keeps = true;           // new numbers go into the file
  std::function<void(const std::string&)> say = {};  // told what takes time
};

/// Computes them with the model as it is now. Every rank must call.
void take_references(const Job& job, TrainingSetup& setup, const ReferenceRequest& request);

}  // namespace gputrain::app

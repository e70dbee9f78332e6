// What some tasks take from the model as it is before training: Task::reference().
#pragma once

#include <filesystem>

#include "gputrain/job/job.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Gives the samples room for these numbers, if the task has any.
void add_references(JobDatasets& datasets);

/// Computes them for all datasets with the model as it is now, and keeps them in `file`. What the file has of the same
/// data and the same beginning is taken from there. Every rank must call.
void take_references(const Job& job, TrainingSetup& setup, const std::filesystem::path& file);

}  // namespace gputrain::app

// Weights that a run has trained.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gputrain/job/job.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Returns the path of a run's trained weights: its adapter or model.safetensors or, before there is one, its newest
/// checkpoint; empty: it has saved nothing.
std::filesystem::path weights_of_run(const Job& job, const RunFolder& run);

/// Returns the run folder around a checkpoint (RUN/ckpt/best, RUN/ckpt/step-00000100); for another folder, itself.
RunFolder run_at(const std::filesystem::path& folder);
/// Returns the weights of such a folder: the checkpoint itself, or weights_of_run(). Throws Error(data) if the run has
/// saved nothing.
std::filesystem::path weights_at(const std::filesystem::path& folder, const Job& job, const RunFolder& run);

struct TrainedRun {
  Job job;
  std::filesystem::path weights;
};
/// Opens a run that has trained weights, or a checkpoint of one. Throws Error(usage) for another folder; Error(data) if
/// the run has saved nothing.
TrainedRun trained_run(const std::filesystem::path& folder, const std::vector<std::string>& set);

/// Refuses data in which numbers of tokens or classes stand for others than in the data that the weights were trained
/// on: its files may have changed since. Throws Error(data).
void check_learned_from(const std::filesystem::path& weights, const JobDatasets& datasets);

/// Loads trained weights from a file, a folder, a checkpoint, or an adapter's folder, whose base is loaded already.
/// Throws Error(data).
void load_trained(const std::filesystem::path& weights, BuiltModel& built);

/// Throws Error(data) if the model has another base than the run trained it on, as far as a checkpoint of the run
/// tells. `trained`: the run's adapter, or a checkpoint.
void check_base(const std::filesystem::path& trained, const BuiltModel& built);

}  // namespace gputrain::app

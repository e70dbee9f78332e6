// The weights that a run has trained.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gputrain/job/job.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Where a run's trained weights lie: its adapter or model.safetensors or, before there is one, its newest checkpoint;
/// empty: it has saved nothing.
std::filesystem::path weights_of_run(const Job& job, const RunFolder& run);

/// The run folder that a checkpoint lies in (RUN/ckpt/best, RUN/ckpt/step-00000100); of another folder, itself.
RunFolder run_at(const std::filesystem::path& folder);
/// The weights of such a folder: the checkpoint itself, or weights_of_run(). Throws Error(data) if the run has saved
/// nothing.
std::filesystem::path weights_at(const std::filesystem::path& folder, const Job& job, const RunFolder& run);

struct TrainedRun {
  Job job;
  std::filesystem::path weights;
};
/// A run that has trained weights, or a checkpoint of one. Throws Error(usage) for another folder; Error(data) if the
/// run has saved nothing.
TrainedRun trained_run(const std::filesystem::path& folder, const std::vector<std::string>& set);

/// Refuses data in which numbers of tokens or classes stand for others than in what the weights were trained on: its
/// files may have changed since. Throws Error(data).
void check_learned_from(const std::filesystem::path& weights, const JobDatasets& datasets);

/// Loads trained weights: of a file, a folder, a checkpoint, or an adapter's folder, whose base is loaded already.
/// Throws Error(data).
void load_trained(const std::filesystem::path& weights, BuiltModel& built);

}  // namespace gputrain::app

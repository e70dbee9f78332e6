// Differences between two checkpoints: settings, metrics, tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/inspect/tensor_difference.hpp"

namespace gputrain::app {

struct ChosenCheckpoint {
  checkpoint::Checkpoint checkpoint;
  std::vector<std::string> skipped;  // newer checkpoints that are damaged
};

/// Opens the named checkpoint, or the newest good one of a run. Throws Error(usage) if the path is neither,
/// Error(checkpoint) if no checkpoint is good.
ChosenCheckpoint choose_checkpoint(const std::filesystem::path& named);

struct SettingDifference {
  std::string key, a, b;
  std::string change;  // on resume: "safe", "needs --accept", "refused" or "unknown"
};

struct MetricPair {
  std::string name;
  std::optional<double> a, b;
};

struct NamedDifference {
  std::string name, kind;  // "Float [96, 32]"
  TensorDifference difference;
};

struct FileDifference {
  std::string name;
  size_t tensors = 0;  // tensors in both files with equal dtype and shape
  TensorDifference total;
  std::vector<NamedDifference> differing;  // worst first
  std::vector<std::string> only_in_a, only_in_b;
  struct OtherKind {
    std::string name, a, b;
  };
  std::vector<OtherKind> other_kind;

  bool is_equal() const { return differing.empty() && only_in_a.empty() && only_in_b.empty() && other_kind.empty(); }
};

struct CheckpointDifference {
  ChosenCheckpoint a, b;
  std::vector<SettingDifference> settings;
  std::vector<MetricPair> metrics;
  std::vector<FileDifference> files;

  bool is_equal() const {
    return std::all_of(files.begin(), files.end(), [](const auto& file) { return file.is_equal(); });
  }
};

CheckpointDifference compare_checkpoints(ChosenCheckpoint a, ChosenCheckpoint b);

}  // namespace gputrain::app

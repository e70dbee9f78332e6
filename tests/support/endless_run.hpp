// A run that continues until a test ends it, and its checkpoints.
#pragma once

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {

/// Names of the finished checkpoints of a run, in order.
inline std::vector<std::string> checkpoints(const std::string& run) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(run) / "ckpt")) {
    if (!entry.is_symlink()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline nlohmann::json summary(const std::string& run) {
  return nlohmann::json::parse(read_file(run + "/summary.json"));
}

/// A job that would run for minutes, and saves only at its end or on request.
inline std::vector<std::string> endless(const TemporaryFolder& folder, std::vector<std::string> more = {}) {
  const std::string job =
      write_gpt_job(folder, "log: {interval: 1}\neval: {interval: null}\ncheckpoint: {interval: null}\n");
  std::vector<std::string> arguments{gputrain_path(),          "run", job, "--output-dir", folder / "run", "--set",
                                     "train.max_steps=1000000"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace gputrain::testing_support

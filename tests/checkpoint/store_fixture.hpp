// A folder of small checkpoints, removed when the test ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/store.hpp"

namespace gputrain::checkpoint {

namespace fs = std::filesystem;

inline float weight_of(const Checkpoint& checkpoint) {
  return checkpoint.part("model").tensor("w").min().item<float>();
}

/// Writes a manifest with a valid seal: a deliberate change.
inline void write_sealed_manifest(const fs::path& path, nlohmann::json manifest) {
  const std::string zeros(32, '0'), key = "\n  \"seal\": \"";
  manifest["seal"] = zeros;
  std::string text = manifest.dump(2);
  Sealer sealer;
  sealer.add(text.data(), text.size());
  text.replace(text.find(key) + key.size(), zeros.size(), sealer.seal().xxh3_128);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

class StoreFixture : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  /// A checkpoint whose content tells its step.
  static void save(CheckpointStore& store, int64_t step) {
    const NamedTensors model{{"w", at::full({3}, static_cast<float>(step))}, {"b", at::arange(4)}};
    store.save({.step = step,
                .files = {{"model", model}, {"rng", {{"cpu", at::arange(8, at::kByte)}}}},
                .state = nlohmann::json{{"loader_step", step}}.dump()});
  }
  static void save_scored(CheckpointStore& store, int64_t step, double loss) {
    store.save({.step = step, .state = "{}", .score = Score{"val/loss", loss}});
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.is_directory() && !entry.is_symlink()) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  static std::string content_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  static void overwrite(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_checkpoint_" + std::to_string(::getpid()));
};

}  // namespace gputrain::checkpoint

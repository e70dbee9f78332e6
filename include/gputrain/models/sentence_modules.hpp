// Folders of the package sentence-transformers: settings beside config.json for turning a text into a vector.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/load.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::models {

struct SentenceModules {
  std::string pooling = "mean";              // an option of the model: mean, first or last
  bool normalizes = false;                   // vectors have unit length
  std::optional<int64_t> longest_text = {};  // limit in tokens; none: the model's
  int64_t channels = 0;                      // length of a vector; 0: the model's
};

/// Reads modules.json and the folders that it names; none: there is no modules.json. Throws Error(data) for a module or
/// a setting that we do not compute.
std::optional<SentenceModules> read_sentence_modules(const std::filesystem::path& folder);

/// Returns the modules of an encoder that gives vectors; none for any other model.
std::optional<SentenceModules> sentence_modules_of(const Model& model);

/// Returns `--set` lines for the options that the job does not set itself; none if it asks for a head that gives no
/// vectors. `key` is the model's key in the job: "model".
std::vector<std::string> settings_of(const SentenceModules& modules, const config::Loaded& job, const std::string& key);

}  // namespace gputrain::models

// Published models in the cache of the Hugging Face Hub, which huggingface_hub shares.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "gputrain/core/process.hpp"

namespace gputrain::hub {

/// Model of the Hub, written `org/name`, `name` or `org/name@revision`.
struct ModelName {
  std::string name;
  std::string revision = "main";  // branch, tag or commit
};

/// Parses a model's name; returns nothing if the text cannot be one: it is a path.
std::optional<ModelName> model_name(std::string_view text);

/// Returns whether the text is the 40 hex digits of a commit.
bool is_commit(std::string_view text);

/// Returns the folder of all cached models: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
/// $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, whichever is set first.
std::filesystem::path cache_folder(const Lookup& lookup);
std::filesystem::path cache_folder();

/// Returns $HF_HOME or its default: the token is in it.
std::filesystem::path home_folder(const Lookup& lookup);

/// Returns the folder of one model in the cache, with `blobs`, `refs` and `snapshots`; it may not exist.
std::filesystem::path model_folder(const std::filesystem::path& cache, const ModelName& model);

/// Finds a model's files: returns a path that exists, or that cannot be a name, as it is; else the snapshot of a model
/// in the cache. Throws Error(data) for a name that is in neither place.
std::filesystem::path pretrained_path(const std::string& name_or_path);

/// Does the same, but returns the text itself for a name that is nowhere.
std::filesystem::path pretrained_path_or_name(const std::string& name_or_path);

/// Returns the folder of a model's files in a cache; empty: the model is not there.
std::filesystem::path snapshot_in(const std::filesystem::path& cache, const ModelName& model);

/// Returns the command that fetches missing files of the snapshot in which a path lies; empty: it lies in no cache.
std::string fetch_command_for(const std::filesystem::path& path);

/// Returns a variable of this process.
std::optional<std::string> environment_variable(const char* name);

}  // namespace gputrain::hub

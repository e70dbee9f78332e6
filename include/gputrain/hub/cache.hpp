// Finds published models in the cache of the Hugging Face Hub, where huggingface_hub keeps them too.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "gputrain/core/process.hpp"

namespace gputrain::hub {

/// A model of the Hub, written `org/name`, `name` or `org/name@revision`.
struct ModelName {
  std::string name;
  std::string revision = "main";  // a branch, a tag or a commit
};

/// Nothing if the text cannot name a model: it is a path.
std::optional<ModelName> model_name(std::string_view text);

/// Whether the text is the 40 hex digits of a commit.
bool is_commit(std::string_view text);

/// The folder of all cached models: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
/// $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, whichever is set first.
std::filesystem::path cache_folder(const Lookup& lookup);
std::filesystem::path cache_folder();

/// $HF_HOME, or where it is by default: the token is in it.
std::filesystem::path home_folder(const Lookup& lookup);

/// The folder of one model in the cache, with `blobs`, `refs` and `snapshots`; it may not exist.
std::filesystem::path model_folder(const std::filesystem::path& cache, const ModelName& model);

/// Where a model's files lie: a path that exists, as it is; else the snapshot of a model in the cache. What can only be
/// a path is returned as it is too. Throws Error(data) for a name that is in neither place.
std::filesystem::path pretrained_path(const std::string& name_or_path);

/// The same, but the text itself for a name that is nowhere.
std::filesystem::path pretrained_path_or_name(const std::string& name_or_path);

/// The folder of a model's files in a cache; empty: the model is not there.
std::filesystem::path snapshot_in(const std::filesystem::path& cache, const ModelName& model);

/// The command that fetches what is missing of the model in whose snapshot a path lies; empty: it lies in no cache.
std::string fetch_command_for(const std::filesystem::path& path);

/// A variable of this process.
std::optional<std::string> environment_variable(const char* name);

}  // namespace gputrain::hub

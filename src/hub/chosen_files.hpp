// Which files of a model's repository are worth fetching.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gputrain::hub {

/// Whether the name is a file of the repository's own folder, safe to create.
bool is_plain_name(const std::string& name);

/// Configurations, tokenizers and chat templates, with the index of the weights.
std::vector<std::string> describing_files(const std::vector<std::string>& names);

/// The weights in safetensors: those of the whole model, not a second copy under other names. `snapshot`: where the
/// index lies, if `names` has one. Throws Error(data) if that names files that the repository does not have.
std::vector<std::string> weight_files(const std::vector<std::string>& names, const std::filesystem::path& snapshot);

}  // namespace gputrain::hub

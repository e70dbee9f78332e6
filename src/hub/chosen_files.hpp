// Files of a model's repository that are worth fetching.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gputrain::hub {

/// Returns whether the name is a file in the top folder of the repository, safe to create.
bool is_plain_name(const std::string& name);

/// Chooses configurations, tokenizers and chat templates, with the index of the weights.
std::vector<std::string> describing_files(const std::vector<std::string>& names);

/// Chooses the weights in safetensors: the whole model's, without a second copy. `snapshot`: folder of the index, if
/// `names` has one. Throws Error(data) if the index names files that the repository does not have.
std::vector<std::string> weight_files(const std::vector<std::string>& names, const std::filesystem::path& snapshot);

}  // namespace gputrain::hub

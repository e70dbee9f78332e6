// Reads what Loaded::resolved_yaml() has written without the schema, for who only shows it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace gputrain::config {

/// Returns the settings of a recorded job, such as "optimizer.lr" and its value on one line of YAML, as
/// Loaded::settings() has them; unchecked. Throws SpecError if the file cannot be read.
std::map<std::string, std::string> recorded_settings(const std::filesystem::path& file);

}  // namespace gputrain::config

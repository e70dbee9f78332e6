// Reads what Loaded::resolved_yaml() has written without the schema, for who only shows it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "gputrain/config/node.hpp"

namespace gputrain::config {

/// Returns the settings of a recorded job, such as "optimizer.lr" and its value on one line of YAML, as
/// Loaded::settings() has them; unchecked. Throws SpecError if the file cannot be read.
std::map<std::string, std::string> recorded_settings(const std::filesystem::path& file);

/// Reads a YAML or JSON document as it stands. `name`: of its source, for messages. Throws SpecError if it is neither.
Node document(const std::string& text, const std::string& name);

}  // namespace gputrain::config

// Settings of a job for trackers.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::monitor {

using Settings = std::map<std::string, std::string>;  // "optimizer.lr" and its value as YAML

/// Masks with *** the values with names of secrets (core/secrets.hpp), and the passwords of URLs. A number is a secret
/// only in `env`, so `train.max_tokens` is none.
Settings masked(const Settings& settings);

/// Converts a value to its own type: null, a bool, a number or a string. A list or a map becomes a string of YAML.
nlohmann::json value_of(const std::string& yaml);

}  // namespace gputrain::monitor

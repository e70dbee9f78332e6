// The settings of a job as trackers get them.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::monitor {

using Settings = std::map<std::string, std::string>;  // "optimizer.lr" and its value as YAML

/// Settings with *** for the values whose names are those of secrets (core/secrets.hpp), and for the passwords of URLs.
/// A number in the job is none: `train.max_tokens`. In `env` it may be.
Settings masked(const Settings& settings);

/// A value in its own type: null, a bool, a number or a string. A list or a map is a string, as the YAML has it.
nlohmann::json value_of(const std::string& yaml);

}  // namespace gputrain::monitor

// Words for messages: what a key wants, and what it was given.
#pragma once

#include <string>

#include "gputrain/config/node.hpp"
#include "gputrain/config/schema.hpp"
#include "gputrain/config/value_type.hpp"

namespace gputrain::config {

/// "a whole number", "auto or a number", "a list of texts".
std::string expectation(const ValueType& type);

/// "'ninety'", "a list", "nothing".
std::string description(const Node& node);

/// "above 0", "between 0 and 1"; empty without limits.
std::string limits_text(const Key::Limits& limits);

}  // namespace gputrain::config

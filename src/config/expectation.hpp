// Words for messages: what a key wants, and what it was given.
#pragma once

#include <string>

#include "gputrain/config/node.hpp"
#include "gputrain/config/schema.hpp"
#include "gputrain/config/value_type.hpp"

namespace gputrain::config {

/// "a whole number", "a number or auto", "a list of texts"; `key` may limit the units of lengths.
std::string expectation(const ValueType& type, const Key& key);

/// "'ninety'", "a list", "nothing".
std::string description(const Node& node);

/// "above 0", "between 0 and 1"; empty without limits.
std::string limits_text(const Key::Limits& limits);

}  // namespace gputrain::config

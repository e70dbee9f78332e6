// Phrases for messages: what a key expects, and what the user gave.
#pragma once

#include <string>

#include "gputrain/config/node.hpp"
#include "gputrain/config/schema.hpp"
#include "gputrain/config/value_type.hpp"

namespace gputrain::config {

/// Returns "a whole number", "a number or auto", "a list of texts"; `key` limits the units of lengths.
std::string expectation(const ValueType& type, const Key& key);

/// Returns "'ninety'", "a list", "nothing".
std::string description(const Node& node);

/// Returns "above 0", "between 0 and 1"; empty if there are no limits.
std::string limits_text(const Key::Limits& limits);

}  // namespace gputrain::config

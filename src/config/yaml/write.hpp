// Turns a spec struct back into a tree and a list of settings.
#pragma once

#include "gputrain/config/load.hpp"
#include "gputrain/config/node.hpp"
#include "gputrain/config/schema.hpp"

namespace gputrain::config {

/// Returns all keys in declaration order. Text is not escaped: call escape_interpolation() before writing YAML.
Node node_of(const Schema& schema, const void* spec);

/// Returns one value, without a key.
Node node_of(const ValueType& type, const void* value);

}  // namespace gputrain::config

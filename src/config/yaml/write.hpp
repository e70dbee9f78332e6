// A spec struct back into a tree and a list of settings.
#pragma once

#include "gputrain/config/load.hpp"
#include "gputrain/config/node.hpp"
#include "gputrain/config/schema.hpp"

namespace gputrain::config {

/// Every key in declaration order. Text is as it is in the struct: escape_interpolation() before it becomes YAML.
Node node_of(const Schema& schema, const void* spec);

/// One value of a type, without a key.
Node node_of(const ValueType& type, const void* value);

}  // namespace gputrain::config

// ${x}, ${env:NAME} and ${env:NAME:-default}, resolved exactly once.
#pragma once

#include "gputrain/config/load.hpp"
#include "gputrain/config/node.hpp"
#include "problems.hpp"
#include "yaml/parse.hpp"

namespace gputrain::config {

/// Replaces every ${...} in the values of `job`. `$${` stands for the characters `${`. Top-level defaults of `schema`
/// can be named, and are put into the tree where they hold a ${...} themselves.
void interpolate(Node& job, const Schema& schema, const Request& request, Budget& budget, Problems& problems);

/// Writes each `${` of the values as `$${`, so that they read back as they are.
void escape_interpolation(Node& node);

}  // namespace gputrain::config

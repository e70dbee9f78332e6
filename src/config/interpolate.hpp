// Resolves ${x}, ${env:NAME} and ${env:NAME:-default}, exactly once.
#pragma once

#include "gputrain/config/load.hpp"
#include "gputrain/config/node.hpp"
#include "problems.hpp"
#include "yaml/parse.hpp"

namespace gputrain::config {

/// Replaces every ${...} in the values of `job`; `$${` stands for the characters `${`. First adds the top-level scalar
/// defaults of `schema` to `job`, so that ${...} can name them. `request` must have its environment.
void interpolate(Node& job, const Schema& schema, const Request& request, const Gaps& gaps, Budget& budget,
                 Problems& problems);

/// Writes each `${` in the values as `$${`, so that the values read back unchanged.
void escape_interpolation(Node& node);

}  // namespace gputrain::config

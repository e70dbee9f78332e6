// Merges the file, its includes and --set into one tree.
#pragma once

#include <optional>

#include "gputrain/config/load.hpp"
#include "gputrain/config/node.hpp"
#include "problems.hpp"
#include "yaml/parse.hpp"

namespace gputrain::config {

/// Reads all layers; `request` must have its environment. Empty if one cannot be read; `problems` has all reasons.
std::optional<Node> read_layers(const Request& request, Budget& budget, Problems& problems);

/// Merges `over` into `base`: maps key by key; any other value replaces; null removes.
void merge(Node& base, Node over);

}  // namespace gputrain::config

// The file, its includes and --set, merged into one tree.
#pragma once

#include <optional>

#include "gputrain/config/load.hpp"
#include "gputrain/config/node.hpp"
#include "problems.hpp"
#include "yaml/parse.hpp"

namespace gputrain::config {

/// Reads all layers; nothing when one cannot be read, with every reason in `problems`.
std::optional<Node> read_layers(const Request& request, Budget& budget, Problems& problems);

/// Puts `over` on top of `base`: maps meet key by key, all else replaces, null removes.
void merge(Node& base, Node over);

}  // namespace gputrain::config

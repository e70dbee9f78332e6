// Merges the file, its includes and --set into one tree.
#pragma once

#include <optional>

#include "gputrain/config/load.hpp"
#include "gputrain/config/node.hpp"
#include "problems.hpp"
#include "yaml/parse.hpp"

namespace gputrain::config {

struct Layers {
  Node job;
  bool is_whole = true;  // false: an included file or a --set could not be read, and is reported
};

/// Reads all layers; `request` must have its environment. Empty if the job itself cannot be read; `problems` has all
/// reasons.
std::optional<Layers> read_layers(const Request& request, Budget& budget, Problems& problems);

/// Merges `over` into `base`: maps key by key; any other value, and a map that says so, replaces; null removes.
void merge(Node& base, Node over);

}  // namespace gputrain::config

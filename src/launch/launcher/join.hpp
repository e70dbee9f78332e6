// The launcher of a node but the first: comes to node 0's, and is its agent from then on.
#pragma once

#include "gputrain/launch/launcher.hpp"
#include "node_door.hpp"

namespace gputrain::launch {

/// Returns what node 0's launcher ends with; 138 when it is lost. Throws Error(usage) when that refuses this node,
/// Error(environment) when it cannot be reached within the time for lost hosts.
int join(const LaunchRequest& request);

/// What a node says of itself.
Coming coming_of(const LaunchRequest& request);
/// "node 1 of 2 by SkyPilot, node 0 at 10.0.0.4 port 29500"
std::string text_of(const NodePlace& place);

/// Serves the launcher at the other end of a socket, which it owns, as serve_agent() does.
int serve_node(const LaunchRequest& own, int socket);

}  // namespace gputrain::launch

// The launcher on every node but the first: connects to node 0's launcher and becomes its agent.
#pragma once

#include "gputrain/launch/launcher.hpp"
#include "node_listener.hpp"

namespace gputrain::launch {

/// Returns the exit code from node 0's launcher; 138 if the connection is lost. Throws Error(usage) when node 0 refuses
/// this node, Error(environment) when node 0 cannot be reached within launch.host_timeout.
int join(const LaunchRequest& request);

/// Returns the facts that a node gives about itself.
NodeHello node_hello_of(const LaunchRequest& request);
/// Returns "node 1 of 2 by SkyPilot, node 0 at 10.0.0.4 port 29500"
std::string text_of(const NodeContext& context);

/// Serves the launcher at the other end of the socket, like serve_agent(). Takes ownership of the socket.
int serve_node(const LaunchRequest& own, int socket);

}  // namespace gputrain::launch

// The end of node 0's launcher to which the launchers of the other nodes connect, to become its agents.
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <string>

#include "gputrain/core/acceptor.hpp"
#include "gputrain/core/lines.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/launch/nodes.hpp"

#include <nlohmann/json.hpp>

namespace gputrain::launch {

/// The facts that a launcher gives about itself when it connects. It keeps its own command and variables; node 0 only
/// tells it when to start, and as which ranks.
struct NodeHello {
  int node = 0, nodes = 1;
  std::string version, job;
  uint64_t command = 0;  // hash of the command of its ranks
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeHello, node, nodes, version, job, command)

class NodeListener {
 public:
  /// `own`: what the other nodes must match. Throws Error(environment) when the port is not available.
  NodeListener(const NodeContext& context, NodeHello own);

  void add_to(Poll& poll) const;
  /// Accepts connections. `arrive` gets the node and a socket to own; returns empty, or why the node must wait.
  using Arrive = std::function<std::string(int node, int socket)>;
  void attend(const Arrive& arrive);

 private:
  struct PendingNode {
    explicit PendingNode(int accepted);
    Descriptor socket;
    LineReader words;
    Clock::time_point latest;
    std::optional<std::string> first_line;
  };
  void let_in(PendingNode& pending, const Arrive& arrive);
  std::string objection_to(const NodeHello& other) const;

  NodeHello own_;
  size_t most_pending_;
  Acceptor acceptor_;
  std::list<PendingNode> pending_nodes_;
};

}  // namespace gputrain::launch

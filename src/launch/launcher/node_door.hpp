// Where the launchers of the other nodes come to the one of node 0, whose agents they are from then on.
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

/// What a launcher says of itself when it comes. No command and no variable of the job is ever sent to it: it has its
/// own, and only learns when to start them and as which ranks.
struct Coming {
  int node = 0, nodes = 1;
  std::string version, job;
  uint64_t command = 0;  // a hash of what its ranks are to run
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Coming, node, nodes, version, job, command)

class NodeDoor {
 public:
  /// `own`: with what the others' must agree. Throws Error(environment) when the port cannot be had.
  NodeDoor(const NodePlace& place, Coming own);

  void add_to(Poll& poll) const;
  /// Takes in who has come. `arrive` gets the node and a socket to own; empty, or why it cannot come in at the moment.
  using Arrive = std::function<std::string(int node, int socket)>;
  void attend(const Arrive& arrive);

 private:
  struct Visitor {
    explicit Visitor(int accepted);
    Descriptor socket;
    LineReader words;
    Clock::time_point latest;
    std::optional<std::string> first_line;
  };
  void let_in(Visitor& visitor, const Arrive& arrive);
  std::string objection_to(const Coming& other) const;

  Coming own_;
  Acceptor acceptor_;
  std::list<Visitor> visitors_;
};

}  // namespace gputrain::launch

#include "node_listener.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "../environment/host_name.hpp"
#include "../protocol/messages.hpp"
#include "gputrain/comm/sockets.hpp"

namespace gputrain::launch {
namespace {

// A connection without a first line in time is no launcher.
constexpr std::chrono::seconds kFirstWord{10};
constexpr size_t kMostStrangers = 64;  // may wait besides one per node

/// Keeps a numeric loopback address (several launchers on one machine), but not "localhost": some schedulers say that
/// to node 0 only.
std::string address_at(const NodeContext& context) {
  if (comm::is_loopback(context.address)) return context.address;
  const comm::Rendezvous at{.rank = 0,
                            .world_size = context.nodes,
                            .local_rank = 0,
                            .local_world_size = 1,
                            .master_address = context.address,
                            .master_port = context.port};
  return comm::rendezvous_address(at);
}

void answer(int socket, const nlohmann::json& message) {
  const std::string line = to_line(message) + "\n";
  // A few bytes into an empty send buffer: they are sent at once, or the visitor is gone.
  [[maybe_unused]] const ssize_t sent = ::send(socket, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

NodeListener::PendingNode::PendingNode(int accepted)
    : socket(accepted),
      words(::fcntl(accepted, F_DUPFD_CLOEXEC, 0), LineReader::kLongestOfStrangers),
      latest(Clock::now() + kFirstWord) {}

NodeListener::NodeListener(const NodeContext& context, NodeHello own)
    : own_(std::move(own)),
      most_pending_(kMostStrangers + static_cast<size_t>(context.nodes)),
      acceptor_(comm::ListeningSocket(address_at(context), context.port).release()) {}

void NodeListener::add_to(Poll& poll) const {
  if (pending_nodes_.size() < most_pending_) acceptor_.add_to(poll);
  for (const auto& pending : pending_nodes_) {
    poll.add(pending.words.descriptor());
    poll.wake_at(pending.latest);
  }
}

void NodeListener::attend(const Arrive& arrive) {
  while (pending_nodes_.size() < most_pending_) {
    const int accepted = acceptor_.next();
    if (accepted < 0) break;
    pending_nodes_.emplace_back(accepted);
  }
  for (auto& pending : pending_nodes_) {
    pending.words.read([&](std::string_view line) {
      if (!pending.first_line) pending.first_line = line;
    });
    // Only now, when nobody reads here any more: the next line answers the link's hello.
    if (pending.first_line) let_in(pending, arrive);
  }
  std::erase_if(pending_nodes_, [](const PendingNode& pending) {
    return pending.first_line || pending.words.is_at_end() || Clock::now() > pending.latest;
  });
}

void NodeListener::let_in(PendingNode& pending, const Arrive& arrive) {
  const auto message = read_message(*pending.first_line);
  if (!message || message->at("kind") != "come") return;
  NodeHello other;
  try {
    other = message->get<NodeHello>();
  } catch (const nlohmann::json::exception&) {
    return;
  }
  const std::string objection = objection_to(other);
  if (!objection.empty()) return answer(pending.socket.get(), {{"kind", "refused"}, {"text", objection}});
  const std::string obstacle = arrive(other.node, pending.socket.get());
  if (obstacle.empty())
    pending.socket.release();
  else
    answer(pending.socket.get(), {{"kind", "wait"}, {"text", obstacle}});
}

std::string NodeListener::objection_to(const NodeHello& other) const {
  const auto differ = [](const std::string& what, const std::string& here, const std::string& there) {
    return what + " on node 0 is " + in_quotes(here) + ", here " + in_quotes(there);
  };
  if (other.version != own_.version) return differ("gputrain", own_.version, other.version);
  if (other.job != own_.job) return differ("the job", own_.job, other.job);
  if (other.nodes != own_.nodes)
    return differ("the number of nodes", std::to_string(own_.nodes), std::to_string(other.nodes));
  if (other.node < 1 || other.node >= own_.nodes) return "there is no node " + std::to_string(other.node);
  if (other.command != own_.command) return "the command on node 0 differs from the one here";
  return {};
}

}  // namespace gputrain::launch

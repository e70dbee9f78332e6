#include "node_door.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "../environment/host_name.hpp"
#include "../protocol/messages.hpp"
#include "gputrain/comm/sockets.hpp"

namespace gputrain::launch {
namespace {

// A connection without a first line in time is no launcher. kMostVisitors limits how many may wait.
constexpr std::chrono::seconds kFirstWord{10};
constexpr size_t kMostVisitors = 4096;

/// Keeps a numeric loopback address (several launchers on one machine), but not "localhost": some schedulers say that
/// to node 0 only.
std::string address_at(const NodePlace& place) {
  if (comm::is_loopback(place.address)) return place.address;
  const comm::Rendezvous at{.rank = 0,
                            .world_size = place.nodes,
                            .local_rank = 0,
                            .local_world_size = 1,
                            .master_address = place.address,
                            .master_port = place.port};
  return comm::meeting_address(at);
}

void answer(int socket, const nlohmann::json& message) {
  const std::string line = to_line(message) + "\n";
  // A few bytes into an empty send buffer: they are sent at once, or the visitor is gone.
  [[maybe_unused]] const ssize_t sent = ::send(socket, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

NodeDoor::Visitor::Visitor(int accepted)
    : socket(accepted), words(::fcntl(accepted, F_DUPFD_CLOEXEC, 0)), latest(Clock::now() + kFirstWord) {}

NodeDoor::NodeDoor(const NodePlace& place, Coming own)
    : own_(std::move(own)), acceptor_(comm::ListeningSocket(address_at(place), place.port).release()) {}

void NodeDoor::add_to(Poll& poll) const {
  if (visitors_.size() < kMostVisitors) acceptor_.add_to(poll);
  for (const auto& visitor : visitors_) {
    poll.add(visitor.words.descriptor());
    poll.wake_at(visitor.latest);
  }
}

void NodeDoor::attend(const Arrive& arrive) {
  while (visitors_.size() < kMostVisitors) {
    const int accepted = acceptor_.next();
    if (accepted < 0) break;
    visitors_.emplace_back(accepted);
  }
  for (auto& visitor : visitors_) {
    visitor.words.read([&](std::string_view line) {
      if (!visitor.first_line) visitor.first_line = line;
    });
    // Only now, when nobody reads here any more: the next line answers the link's hello.
    if (visitor.first_line) let_in(visitor, arrive);
  }
  std::erase_if(visitors_, [](const Visitor& visitor) {
    return visitor.first_line || visitor.words.is_at_end() || Clock::now() > visitor.latest;
  });
}

void NodeDoor::let_in(Visitor& visitor, const Arrive& arrive) {
  const auto message = read_message(*visitor.first_line);
  if (!message || message->at("kind") != "come") return;
  Coming other;
  try {
    other = message->get<Coming>();
  } catch (const nlohmann::json::exception&) {
    return;
  }
  const std::string objection = objection_to(other);
  if (!objection.empty()) return answer(visitor.socket.get(), {{"kind", "refused"}, {"text", objection}});
  const std::string obstacle = arrive(other.node, visitor.socket.get());
  if (obstacle.empty())
    visitor.socket.release();
  else
    answer(visitor.socket.get(), {{"kind", "wait"}, {"text", obstacle}});
}

std::string NodeDoor::objection_to(const Coming& other) const {
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

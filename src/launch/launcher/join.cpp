#include "join.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "../protocol/messages.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/core/reminder.hpp"
#include "terminal.hpp"

namespace gputrain::launch {
namespace {

constexpr std::chrono::seconds kOneTry{4}, kBeforeNextTry{1}, kFirstAnswer{15}, kAlreadyHere{40};
constexpr const char* kNoAnswer = "connected, but no answer";

/// Says why this node still waits, from time to time.
using Remind = std::function<void(const std::string& obstacle)>;

/// The result of one try to connect.
struct Entry {
  int socket = -1;        // owned by the caller
  std::string obstacle;   // why it failed
  bool is_taken = false;  // another process is already connected as this node
};

bool becomes_ready(int socket, short events, Clock::time_point latest) {
  Poll poll;
  poll.add(socket, events);
  poll.wake_at(latest);
  poll.wait();
  return poll.is_ready(socket);
}

/// Connects a socket; negative, with the reason in errno, if that fails.
int connect_to(const addrinfo& address) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return -1;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return -1;
    errno = ETIMEDOUT;
    if (!becomes_ready(socket.get(), POLLOUT, Clock::now() + kOneTry)) return -1;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    errno = error;
    if (error != 0) return -1;
  }
  return socket.release();
}

int connect_to(const NodeContext& context, std::string& obstacle) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(context.address.c_str(), std::to_string(context.port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  if (status != 0) obstacle = ::gai_strerror(status);
  for (const addrinfo* one = list.get(); status == 0 && one != nullptr; one = one->ai_next) {
    if (const int socket = connect_to(*one); socket >= 0) return socket;
    obstacle = std::strerror(errno);
  }
  return -1;
}

/// Returns the first line of the answer, left in the socket: if it is a hello, the agent reads it.
std::optional<nlohmann::json> peek_answer(int socket, Clock::time_point latest, const Remind& remind) {
  std::array<char, 4096> buffer{};
  for (size_t before = 0; Clock::now() < latest;) {
    if (!becomes_ready(socket, POLLIN, std::min(latest, Clock::now() + kOneTry))) {
      remind(kNoAnswer);
      continue;
    }
    const ssize_t count = ::recv(socket, buffer.data(), buffer.size(), MSG_PEEK);
    if (count <= 0) break;
    const std::string_view text(buffer.data(), static_cast<size_t>(count));
    if (const size_t end = text.find('\n'); end != std::string_view::npos) return read_message(text.substr(0, end));
    if (text.size() == buffer.size()) break;
    if (std::exchange(before, text.size()) != text.size()) continue;
    remind(kNoAnswer);
    becomes_ready(-1, 0, Clock::now() + std::chrono::milliseconds(20));
  }
  return std::nullopt;
}

Entry try_to_enter(const LaunchRequest& request, Clock::time_point latest, const Remind& remind) {
  Entry entry;
  Descriptor socket(connect_to(*request.node, entry.obstacle));
  if (socket.get() < 0) return entry;
  nlohmann::json words = node_hello_of(request);
  words["kind"] = "come";
  const std::string line = to_line(words) + "\n";
  if (::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    entry.obstacle = std::strerror(errno);
    return entry;
  }
  const auto now = Clock::now();
  const auto answer = peek_answer(socket.get(), std::clamp(latest, now + kBeforeNextTry, now + kFirstAnswer), remind);
  const std::string kind = answer ? answer->value("kind", "") : "";
  if (kind == "refused") {
    throw Error(ExitCode::usage, {.what = "node 0's launcher refuses this node: " + answer->value("text", ""),
                                  .where = text_of(*request.node),
                                  .hint = "start the same command, with the same gputrain, on every node"});
  }
  entry.is_taken = kind == "wait";
  if (kind != "hello") {
    entry.obstacle = answer ? answer->value("text", "its answer is not that of a launcher") : kNoAnswer;
    return entry;
  }
  entry.socket = socket.release();
  return entry;
}

}  // namespace

NodeHello node_hello_of(const LaunchRequest& request) {
  std::string command;
  for (const auto& word : request.command()) command += word + '\0';
  return {.node = request.node->node,
          .nodes = request.node->nodes,
          .version = request.version,
          .job = request.node->job,
          .command = stable_hash(command)};
}

std::string text_of(const NodeContext& context) {
  return "node " + std::to_string(context.node) + " of " + std::to_string(context.nodes) + " by " + context.scheduler +
         ", node 0 at " + context.address + " port " + std::to_string(context.port);
}

int join(const LaunchRequest& request) {
  const auto began = Clock::now();
  const auto latest =
      began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.host_timeout_seconds));
  const auto say = [&](const std::string& what) { Terminal(request.measures).say(text_of(*request.node) + what); };
  Reminder reminder(std::chrono::milliseconds(0));
  const Remind remind = [&](const std::string& obstacle) {
    if (reminder.is_due()) say(": waiting for node 0 (" + obstacle + ")");
  };
  for (;;) {
    const Entry entry = try_to_enter(request, latest, remind);
    if (entry.socket >= 0) {
      say(": connected; node 0 prints the output of the ranks");
      return serve_node(request, entry.socket);
    }
    const auto now = Clock::now();
    if (entry.is_taken && now > began + kAlreadyHere) {
      throw Error(ExitCode::usage, {.what = entry.obstacle,
                                    .where = text_of(*request.node),
                                    .hint = "two nodes have the same number, or the job was started twice"});
    }
    if (now > latest) {
      throw Error(
          ExitCode::environment,
          {.what = "node 0's launcher cannot be reached: " + entry.obstacle,
           .where = text_of(*request.node),
           .hint = "check that it runs and that no firewall blocks the port; launch.host_timeout is how long to try"});
    }
    remind(entry.obstacle);
    becomes_ready(-1, 0, std::min(latest, now + kBeforeNextTry));
  }
}

}  // namespace gputrain::launch

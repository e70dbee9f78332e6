#include "gputrain/net/server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <list>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <sys/socket.h>

#include "gputrain/core/acceptor.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/device/thread.hpp"

namespace gputrain::net {
namespace {

constexpr size_t kMostConnections = 64;
constexpr std::chrono::seconds kPatience{10};                // for a whole request and its answer
constexpr std::chrono::milliseconds kPatienceWhenFull{500};  // for a whole request while other clients cannot come in

/// A client whose request is being read or whose answer is being sent.
struct Connection {
  explicit Connection(int descriptor) : socket(descriptor) {}

  Descriptor socket;
  Clock::time_point begin = Clock::now();
  std::string in, out;
  size_t sent = 0;
  bool is_answered = false;

  Clock::time_point until(bool is_full) const {
    if (is_full && !is_answered) return begin + kPatienceWhenFull;
    return begin + kPatience;
  }
};

/// Reads what has come. False: the client has gone.
bool receive(Connection& client) {
  std::array<char, 16384> buffer{};
  const ssize_t count = ::recv(client.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count > 0) client.in.append(buffer.data(), static_cast<size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

/// Sends what there is room for. False: all is sent, or the client has gone.
bool send_more(Connection& client) {
  const ssize_t count = ::send(client.socket.get(), client.out.data() + client.sent, client.out.size() - client.sent,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  client.sent += static_cast<size_t>(count);
  return client.sent < client.out.size();
}

Response answer_of(const Server::Handler& handler, const Request& request) {
  try {
    return handler(request);
  } catch (const std::exception& failure) {
    return {.status = 500, .body = std::string(failure.what()) + "\n"};
  }
}

/// False: the connection ends.
bool serve(Connection& client, const Server::Handler& handler) {
  if (client.is_answered) return send_more(client);
  if (!receive(client)) return false;
  Request request;
  const Parsed parsed = parse(client.in, request);
  if (parsed == Parsed::incomplete) return true;
  client.is_answered = true;
  client.out = text_of(
      parsed == Parsed::wrong ? Response{.status = 400, .body = "not understood\n"} : answer_of(handler, request),
      /*has_body=*/request.method != "HEAD");
  return send_more(client);
}

}  // namespace

bool is_local_host(const std::string& host) {
  std::string name = lower_case(host.ends_with(']') ? host : host.substr(0, host.rfind(':')));  // without the port
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  in6_addr address{};
  return name == "localhost" || name.ends_with(".localhost") || ::inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

Server::Server(Listener listener, Handler handler)
    : handler_(std::move(handler)), port_(listener.port), is_private_(listener.is_private) {
  const int socket = listener.socket->release();
  thread_ = device::start_thread("metrics server", [this, socket] { run(socket); });
}

Server::~Server() {
  end_.cancel();
  thread_.join();
}

void Server::run(int listener) {
  Acceptor acceptor(listener);
  std::list<Connection> clients;
  while (true) {
    Poll poll;
    poll.add(end_.descriptor());
    const bool is_full = clients.size() >= kMostConnections;
    if (!is_full) acceptor.add_to(poll);
    for (const Connection& client : clients) {
      poll.add(client.socket.get(), client.is_answered ? POLLOUT : POLLIN);
      poll.wake_at(client.until(is_full));
    }
    poll.wait();
    if (poll.is_ready(end_.descriptor())) return;
    const auto now = Clock::now();
    std::erase_if(clients, [&](Connection& client) {
      return client.until(is_full) < now || (poll.is_ready(client.socket.get()) && !serve(client, handler_));
    });
    while (clients.size() < kMostConnections) {
      const int next = acceptor.next();
      if (next < 0) break;
      clients.emplace_back(next);
      if (is_private_ && !is_own_process(next)) clients.pop_back();
    }
  }
}

}  // namespace gputrain::net

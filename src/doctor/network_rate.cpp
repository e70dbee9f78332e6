#include "network_rate.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/poll.hpp"

namespace gputrain::doctor {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::milliseconds kSending{500};
constexpr size_t kBlock = size_t{1} << 20;

[[noreturn]] void give_up(const std::string& what) { throw Error(ExitCode::environment, {.what = what}); }

/// Returns false if the socket is not ready in time.
bool is_ready(int descriptor, short events, Clock::time_point latest) {
  Poll poll;
  poll.add(descriptor, events);
  poll.wake_at(latest);
  poll.wait();
  return poll.is_ready(descriptor);
}

/// Closes the socket.
void take_from(int listening) {
  const Descriptor socket(listening);
  if (!is_ready(socket.get(), POLLIN, Clock::now() + kPatience)) return;
  const Descriptor connection(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  std::vector<char> block(kBlock);
  while (connection.get() >= 0 && is_ready(connection.get(), POLLIN, Clock::now() + kPatience)) {
    const ssize_t count = ::read(connection.get(), block.data(), block.size());
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

}  // namespace

Drain::Drain(const std::string& address) {
  comm::ListeningSocket socket(address, 0);
  port_ = socket.port();
  thread_ = std::jthread([listening = socket.release()] { take_from(listening); });
}

int connect_within(const std::string& address, uint16_t port, int seconds) {
  Descriptor socket(comm::begin_connecting(address, port));
  if (socket.get() < 0) give_up("no route");
  if (!is_ready(socket.get(), POLLOUT, Clock::now() + std::chrono::seconds(seconds)))
    give_up("no answer in " + std::to_string(seconds) + " s");
  const std::string failure = comm::connecting_failure(socket.get());
  if (!failure.empty()) give_up(failure);
  return socket.release();
}

double send_rate(const std::string& address, uint16_t port) {
  const Descriptor socket(connect_within(address, port, 3));
  const std::vector<char> block(kBlock, 'x');
  const auto begin = Clock::now();
  double sent = 0;
  while (Clock::now() < begin + kSending) {
    if (!is_ready(socket.get(), POLLOUT, begin + kPatience)) break;
    const ssize_t count = ::send(socket.get(), block.data(), block.size(), MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) give_up(std::strerror(errno));
    if (count > 0) sent += static_cast<double>(count);
  }
  ::shutdown(socket.get(), SHUT_WR);
  if (!is_ready(socket.get(), POLLIN, begin + kPatience)) give_up("the other end has not taken it all in 10 s");
  return sent / std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace gputrain::doctor

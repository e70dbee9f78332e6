// One TCP connection, as fast as it goes.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

namespace gputrain::doctor {

/// Reads and drops what one connection sends, in a thread; gives up if none comes within seconds.
class Drain {
 public:
  /// Throws Error(environment) when the address is not available.
  explicit Drain(const std::string& address);

  uint16_t port() const noexcept { return port_; }

 private:
  uint16_t port_ = 0;
  std::jthread thread_;
};

/// Returns a connected socket, which does not block and which the caller closes. Throws Error(environment).
int connect_within(const std::string& address, uint16_t port, int seconds);

/// Measures bytes per second, from the first byte until the other end has read the last one. Throws Error(environment).
double send_rate(const std::string& address, uint16_t port);

}  // namespace gputrain::doctor

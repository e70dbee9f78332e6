// Addresses of this host as the routing table sees them, and a listening socket bound to one of them.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/comm/rendezvous.hpp"

namespace gputrain::comm {

/// A numeric address of `host`, IPv4 first. Throws Error(environment) when the name cannot be resolved.
std::string resolve(const std::string& host);

bool is_loopback(const std::string& address);
bool is_own_address(const std::string& address);

/// The address that packets to `address` leave from; empty without a route.
std::string source_address_towards(const std::string& address);

/// The address that packets to the outside leave from; empty on a host that has only its loopback.
std::string outward_address();

/// "eth0"; empty when no interface has the address.
std::string interface_of(const std::string& address);

/// A TCP socket that begins to connect, without waiting: ready to be written to once that is decided. Negative where
/// it failed at once, with errno saying how.
int begin_connecting(const std::string& address, uint16_t port);

/// What has become of it: "Connection refused"; empty when it is connected.
std::string connecting_failure(int descriptor);

/// Where those who meet are reached from here, as a numeric address.
std::string meeting_address(const Rendezvous& at);

/// A TCP socket that listens on one address only and is closed in child processes.
class ListeningSocket {
 public:
  /// Throws Error(environment) when the address or port cannot be had.
  ListeningSocket(const std::string& address, uint16_t port);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  uint16_t port() const noexcept { return port_; }
  int release() noexcept;  // the caller closes it

 private:
  int descriptor_ = -1;
  uint16_t port_ = 0;
};

}  // namespace gputrain::comm

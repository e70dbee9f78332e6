// Addresses of this host according to the routing table, and a listening socket bound to one of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "gputrain/comm/rendezvous.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::comm {

/// The name servers do not know a name, perhaps not yet: that of a host that has just been started, for instance.
class UnknownName : public Error {
 public:
  explicit UnknownName(Parts parts) : Error(ExitCode::environment, std::move(parts)) {}
};

/// Returns a numeric address of `host`, IPv4 first. Throws Error(environment) when the name cannot be resolved.
std::string resolve(const std::string& host);

bool is_loopback(const std::string& address);
bool is_own_address(const std::string& address);

/// Returns the source address of packets to `address`; empty without a route.
std::string source_address_towards(const std::string& address);

/// Returns the source address of packets that leave this host; empty if the host has only its loopback.
std::string outward_address();

/// Returns the interface that has the address, "eth0"; empty: none.
std::string interface_of(const std::string& address);

/// Starts a TCP connection without waiting. Returns the socket, which becomes writable when the attempt has succeeded
/// or failed, and which the caller closes; negative, with errno set, if it failed at once.
int begin_connecting(const std::string& address, uint16_t port);

/// Returns the error of a finished connection attempt, "Connection refused"; empty if it succeeded.
std::string connecting_failure(int descriptor);

/// Returns the numeric address where the ranks meet, as this host reaches it.
std::string rendezvous_address(const Rendezvous& at);

/// A TCP socket that listens on one address only and is closed in child processes.
class ListeningSocket {
 public:
  /// Throws Error(environment) when the address or port is not available.
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

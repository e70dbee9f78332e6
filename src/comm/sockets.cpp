#include "gputrain/comm/sockets.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "port_owner.hpp"

namespace gputrain::comm {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList look_up(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) {
    throw UnknownName({.what = "the name '" + host + "' cannot be resolved: " + ::gai_strerror(status),
                       .hint = "check MASTER_ADDR, or give the host's numeric address"});
  }
  return {found, &::freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = {};
  const int status = ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return status == 0 ? text : std::string();
}

std::string cause() { return std::system_category().message(errno); }

}  // namespace

std::string resolve(const std::string& host) {
  const AddressList list = look_up(host, 0, 0);
  const addrinfo* chosen = list.get();
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    if (one->ai_family == AF_INET) {
      chosen = one;
      break;
    }
  }
  return numeric(chosen->ai_addr, chosen->ai_addrlen);
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

bool is_own_address(const std::string& address) {
  const AddressList list = look_up(address, 0, AI_NUMERICHOST);
  const Descriptor probe(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return probe.get() >= 0 && ::bind(probe.get(), list->ai_addr, list->ai_addrlen) == 0;
}

std::string source_address_towards(const std::string& address) {
  constexpr uint16_t kAnyPort = 9;  // connecting a datagram socket sends nothing
  const AddressList list = look_up(address, kAnyPort, AI_NUMERICHOST);
  const Descriptor probe(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (probe.get() < 0 || ::connect(probe.get(), list->ai_addr, list->ai_addrlen) != 0) return {};
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* own_address = reinterpret_cast<sockaddr*>(&own);
  if (::getsockname(probe.get(), own_address, &length) != 0) return {};
  return numeric(own_address, length);
}

std::string outward_address() {
  // Addresses reserved for documentation: routed like any foreign address, never answered.
  for (const char* foreign : {"192.0.2.1", "2001:db8::1"}) {
    std::string address = source_address_towards(foreign);
    if (!address.empty() && !is_loopback(address)) return address;
  }
  return {};
}

std::string interface_of(const std::string& address) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const auto family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (numeric(one->ifa_addr, length) == address) return one->ifa_name;
  }
  return {};
}

int begin_connecting(const std::string& address, uint16_t port) {
  const AddressList list = look_up(address, port, AI_NUMERICHOST);
  Descriptor socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return -1;
  const bool failed = ::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS;
  return failed ? -1 : socket.release();
}

std::string connecting_failure(int descriptor) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? std::string() : std::system_category().message(error);
}

std::string rendezvous_address(const Rendezvous& at) {
  std::string address = resolve(at.master_address);
  const bool spans_hosts = at.world_size > at.local_world_size;
  // Ranks of one host may know differently whether there are others. So the name alone decides which address they take.
  const bool is_name = !is_loopback(at.master_address) && at.master_address != "localhost" && !at.store_is_running;
  // A host's own name often resolves to its loopback, and a service name to an address that no host has: rank 0 then
  // serves the address by which the outside reaches it.
  if (((spans_hosts || is_name) && is_loopback(address)) ||
      (at.rank == 0 && !at.store_is_running && !is_own_address(address))) {
    std::string outward = outward_address();
    if (outward.empty() && !spans_hosts && is_loopback(address)) return address;
    if (outward.empty()) {
      throw Error(ExitCode::environment,
                  {.what = "MASTER_ADDR=" + at.master_address + " is " + address +
                           ", which other hosts cannot reach, and this host has no other address",
                   .hint = "set MASTER_ADDR to the address of rank 0's host in the ranks' network"});
    }
    return outward;
  }
  return address;
}

ListeningSocket::ListeningSocket(const std::string& address, uint16_t port) {
  const AddressList list = look_up(address, port, AI_NUMERICHOST);
  Descriptor socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (socket.get() >= 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (socket.get() < 0 || ::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    const bool is_taken = errno == EADDRINUSE;
    std::string what = "cannot listen on " + address + " port " + std::to_string(port) + ": " + cause();
    const std::string owner = is_taken ? port_owner(port) : "";
    if (!owner.empty()) what += ": it is used by " + owner;
    throw Error(
        ExitCode::environment,
        {.what = std::move(what),
         .hint = is_taken ? "if this job was started twice, end one of them; otherwise choose another MASTER_PORT"
                          : "check MASTER_ADDR and MASTER_PORT"});
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  auto* bound_address = reinterpret_cast<sockaddr*>(&bound);
  if (::getsockname(socket.get(), bound_address, &length) != 0) {
    throw Error(ExitCode::environment, {.what = "the listening socket has no address: " + cause()});
  }
  port_ = ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&bound)->sin_port
                                           : reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port);
  descriptor_ = socket.release();
}

ListeningSocket::~ListeningSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int ListeningSocket::release() noexcept { return std::exchange(descriptor_, -1); }

}  // namespace gputrain::comm

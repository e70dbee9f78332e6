// Checks that every rank can reach every other rank, in both directions, before the groups connect.
//
// Without this check the libraries wait for minutes, and then do not say which connection is blocked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gputrain/comm/rendezvous.hpp"

namespace gputrain::comm {

/// The address on which a rank listens.
struct Endpoint {
  std::string address;
  uint16_t port = 0;
  std::string secret;  // shared by all ranks, made by rank 0

  std::string text() const { return address + ":" + std::to_string(port); }
};

/// Publishes where this rank listens and connects to all ranks that have other addresses. Every rank must call, and
/// keep its socket open meanwhile. Returns rank 0's post. Throws Error(environment) on all ranks when one cannot reach
/// another, Error(restart) when a rank has ended.
Endpoint probe(c10d::Store& store, const Rendezvous& at, const std::vector<std::string>& hosts, const Endpoint& own);

/// Connects to a post and returns the socket, which the caller closes. Throws Error(restart).
int connect_to(const Endpoint& endpoint);

}  // namespace gputrain::comm

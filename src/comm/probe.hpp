// Before the groups connect: whether every rank can reach every other one, in both directions.
//
// The libraries below would wait for minutes, and then not say which way is closed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gputrain/comm/rendezvous.hpp"

namespace gputrain::comm {

/// Where a rank listens.
struct Post {
  std::string address;
  uint16_t port = 0;
  std::string secret;  // of all that have met, from rank 0

  std::string text() const { return address + ":" + std::to_string(port); }
};

/// Tells the others where this rank listens and connects to all of them that are on other addresses. Every rank must
/// call, and keep its post open meanwhile. Returns rank 0's. Throws Error(environment) on all ranks when one cannot
/// reach another, Error(restart) when one has ended.
Post probe(c10d::Store& store, const Rendezvous& at, const std::vector<std::string>& hosts, const Post& own);

/// A socket that is connected to a post. Throws Error(restart).
int connect_to(const Post& post);

}  // namespace gputrain::comm

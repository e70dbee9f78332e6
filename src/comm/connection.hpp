// What stands behind a Group: a c10d backend, the deadline of its collectives, and how its failures are told.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "gputrain/comm/group.hpp"
#include "watch.hpp"

namespace gputrain::comm {

struct Connection {
  c10::intrusive_ptr<c10d::Backend> backend;
  at::Device device = at::kCPU;
  std::chrono::milliseconds deadline{};
  std::shared_ptr<Watch> watch;  // null where the others are only imagined
  Channel channel = Channel::control;
  bool failed = false;  // a collective broke off: the backend is torn down without waiting for the others

  bool is_lost() const { return failed || (watch && watch->verdict()); }

  ~Connection();
};

struct Transfer {
  std::shared_ptr<Connection> connection;
  c10::intrusive_ptr<c10d::Work> work;
  std::string what;  // "all-reduce of gradients 3"
  int64_t number;    // in the watch's journal
  std::chrono::steady_clock::time_point start;
};

/// The first line of a library's message, without the source place and call stack that c10 and Gloo put around it.
std::string plain_message(const std::exception& error);

}  // namespace gputrain::comm

// The state behind a Group: a c10d backend, the deadline of its collectives, and the watch that explains failures.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "detector/failure_detector.hpp"
#include "gputrain/comm/group.hpp"

namespace gputrain::comm {

struct Connection {
  c10::intrusive_ptr<c10d::Backend> backend;
  at::Device device = at::kCPU;
  std::chrono::milliseconds deadline{};
  std::shared_ptr<FailureDetector> detector;  // null for groups without peers (simulated_ranks.hpp)
  std::string name;                           // name of the group: its ranks compare their collectives under it
  std::string among;                          // " among shards": which ranks, in names of collectives; empty: all
  bool failed = false;  // a collective failed: destroy the backend without waiting for the other ranks

  bool is_gloo() const noexcept { return detector != nullptr && device.is_cpu(); }
  bool is_lost() const { return failed || (detector && detector->verdict()); }

  ~Connection();
};

struct Transfer {
  std::shared_ptr<Connection> connection;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;  // its parts
  std::string what;                                   // "all-reduce of gradients 3"
  int64_t number;                                     // in the journal of the watch
  std::chrono::steady_clock::time_point start;
  std::function<void()> finish = {};  // makes the result of what was received; null: nothing to do
};

/// Waits before this process ends. torchrun polls for ended ranks ten times a second. It blames one of the ranks that
/// it finds together, and that should be the rank that died, not one that ended because of it. A rank that ends by its
/// own error first waits for rank 0 to end.
void let_the_cause_be_found_first();

/// Returns the first line of a library's message, without the source location and call stack that c10 and Gloo add.
std::string plain_message(const std::exception& error);

}  // namespace gputrain::comm

// The groups a rank belongs to: one for tensors (NCCL between GPUs, Gloo between CPUs), one for control over Gloo.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/group.hpp"
#include "gputrain/comm/rendezvous.hpp"

namespace gputrain::comm {

struct Traffic;  // imagined.hpp

struct GroupOptions {
  at::Device device = at::kCPU;                       // where tensors() works
  std::chrono::milliseconds deadline{600'000};        // of one collective
  std::chrono::milliseconds start_deadline{300'000};  // until every rank has arrived
  std::chrono::milliseconds patience{5'000};          // before rank 0 tells whom it waits for
  std::function<void(const std::string&)>
      on_waiting;  // "3/4 ranks, waiting for rank 2", on rank 0 whenever that changes
};

class ProcessGroups {
 public:
  /// Alone: no socket, no thread, no store.
  ProcessGroups();

  /// Every rank must call. Meets the others at the master's address, then connects. Throws Error(usage) when ranks
  /// contradict each other, Error(environment) when the port cannot be served, Error(restart) when a rank is missing.
  ProcessGroups(const Rendezvous& at, const GroupOptions& options);

  /// Groups of ranks that are not there, for CPU tensors: nothing is sent. What would be is added to `traffic`.
  static ProcessGroups imagined(const Rendezvous& at, std::shared_ptr<Traffic> traffic);

  /// The store of all ranks lives in rank 0: end a run that went well with `control().barrier("end")`.
  ~ProcessGroups();
  ProcessGroups(ProcessGroups&&) noexcept;
  ProcessGroups& operator=(ProcessGroups&&) noexcept;

  int rank() const noexcept { return control_.rank(); }
  int world_size() const noexcept { return control_.size(); }
  bool alone() const noexcept { return world_size() == 1; }
  bool is_imagined() const noexcept { return !alone() && meeting_ == nullptr; }

  Group& tensors() noexcept { return tensors_; }
  Group& control() noexcept { return control_; }  // CPU tensors only

  const std::vector<std::string>& hosts() const noexcept { return hosts_; }  // host name of each rank
  const std::string& description() const noexcept { return description_; }   // "gloo over eth0 (10.0.0.4)"

 private:
  struct Meeting;
  std::unique_ptr<Meeting> meeting_;  // declared first: groups are torn down while the store still answers
  Group control_, tensors_;
  std::vector<std::string> hosts_;
  std::string description_;
};

}  // namespace gputrain::comm

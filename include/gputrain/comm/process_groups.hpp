// The groups a rank belongs to: one for tensors (NCCL between GPUs, Gloo between CPUs), one for control over Gloo.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/group.hpp"
#include "gputrain/comm/rendezvous.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::comm {

struct Traffic;  // imagined.hpp

struct GroupOptions {
  at::Device device = at::kCPU;                       // where tensors() works
  std::string gpu;                                    // which one in the world it is; empty: none
  std::chrono::milliseconds deadline{600'000};        // of one collective
  std::chrono::milliseconds start_deadline{300'000};  // until every rank has arrived
  std::chrono::milliseconds patience{5'000};          // before rank 0 tells whom it waits for
  std::function<void(const std::string&)>
      on_waiting;            // "3/4 ranks, waiting for rank 2", on rank 0 whenever that changes
  std::string program, run;  // "gputrain 0.1.0", "quickstart-5d85e2": the same on all ranks
  // A rank that is not heard from for so long is lost. From the moment that is known, or that another rank has ended by
  // an error, a process has `grace` to end in good order.
  std::chrono::milliseconds silence{15'000}, grace{8'000};
};

class ProcessGroups {
 public:
  /// Alone: no socket, no thread, no store.
  ProcessGroups();

  /// Every rank must call. Meets the others at the master's address, then connects. Throws Error(usage) when ranks
  /// contradict each other, Error(environment) when the port cannot be served, Error(restart) when a rank is missing.
  ProcessGroups(const Rendezvous& at, const GroupOptions& options);

  /// Groups of ranks that are not there, for tensors on `device`: nothing is sent. What would be is added to `traffic`.
  static ProcessGroups imagined(const Rendezvous& at, std::shared_ptr<Traffic> traffic, at::Device device = at::kCPU);

  /// The store of all ranks lives in rank 0: end a run that went well with `control().barrier("end")`.
  ~ProcessGroups();
  ProcessGroups(ProcessGroups&&) noexcept;
  ProcessGroups& operator=(ProcessGroups&&) noexcept;

  /// What this rank is at from now on, for the others to know where it keeps them waiting: "in step", 12.
  void enter(const char* place, int64_t step);
  /// This rank has nothing more to do with the others: whether they end, and how, is no matter to it from here on.
  void leave();
  /// Tells the others that this rank ends, and why: they end too.
  void leave(const std::exception& failure);
  /// The same, and throws the exception that is being handled again: as ToldElsewhere where it is an Error that another
  /// rank, which leaves for the same reason, tells the user. From here on the process has `grace` to end, then it is
  /// ended with the exit code of the failure.
  [[noreturn]] void fail(const std::exception& failure);
  /// What to do before a process is ended that cannot end in good order, because its main thread is stuck; on another
  /// thread, in at most three seconds. null: nothing; does not return where the process is being ended already.
  void set_forced_exit_handler(std::function<void(const Error&)> on_forced_exit);

  int rank() const noexcept { return control_.rank(); }
  int world_size() const noexcept { return control_.size(); }
  bool alone() const noexcept { return world_size() == 1; }
  bool is_imagined() const noexcept { return !alone() && meeting_ == nullptr; }

  Group& tensors() noexcept { return tensors_; }
  Group& control() noexcept { return control_; }  // CPU tensors only

  /// What rank 0 does for all. Where that throws an Error, all ranks throw: the others ToldElsewhere, with its exit
  /// code. Every rank must call.
  void on_rank_zero(const std::function<void()>& action, std::string name);

  /// Whether something holds on every rank. Every rank must call.
  bool holds_everywhere(bool here, std::string name);

  const std::vector<std::string>& hosts() const noexcept { return hosts_; }  // host name of each rank
  const std::string& description() const noexcept { return description_; }   // "gloo over eth0 (10.0.0.4)"

 private:
  struct Meeting;
  std::unique_ptr<Meeting> meeting_;  // declared first: groups are torn down while store and watch still answer
  Group control_, tensors_;
  std::vector<std::string> hosts_;
  std::string description_;
};

/// For ranks that make a mistake before they meet: they meet for this alone, some ten seconds at most. Whether rank 0
/// makes the same one, in these words, and so can be left to tell the user.
bool is_told_by_rank_zero(const Rendezvous& at, const std::string& program, const std::string& words);

}  // namespace gputrain::comm

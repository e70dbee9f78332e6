// The groups of a rank: for tensors (NCCL between GPUs, Gloo between CPUs), one of all ranks and those of a mesh; and
// one for control (Gloo).
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
#include "gputrain/comm/mesh.hpp"
#include "gputrain/comm/rendezvous.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::comm {

struct CollectiveTraffic;  // simulated_ranks.hpp

struct GroupOptions {
  at::Device device = at::kCPU;                       // device of the tensors() group
  std::string gpu;                                    // identifies this rank's GPU; empty: none
  std::chrono::milliseconds deadline{600'000};        // for one collective
  std::chrono::milliseconds start_deadline{300'000};  // for all ranks to arrive
  std::chrono::milliseconds patience{4'000};          // before on_waiting is told
  // Told what this rank waits for: rank 0 at each change, "3/4 ranks, waiting for rank 2 at node0 port 29500"; the
  // others until they have found rank 0; both again once a minute.
  std::function<void(const std::string&)> on_waiting;
  std::string program, run;  // "gputrain 0.1.0", "quickstart-5d85e2": the same on all ranks
  // A rank that sends no heartbeat for `silence` is lost. Once a process knows that a rank is lost or has failed, it
  // has `grace` to end in good order.
  std::chrono::milliseconds silence{15'000}, grace{8'000};
};

class ProcessGroups {
 public:
  /// A world of one rank: no socket, no thread, no store.
  ProcessGroups();

  /// Meets the other ranks at the master's address, then connects the groups. Every rank must call. Throws Error(usage)
  /// when the ranks' settings differ, Error(environment) when the port is taken, hosts cannot connect or two ranks
  /// share a GPU, Error(restart) when a rank is missing.
  ProcessGroups(const Rendezvous& at, const GroupOptions& options);

  /// Groups without peers (simulated_ranks.hpp), for tensors on `device`. `traffic` counts what real groups would send.
  static ProcessGroups simulated(const Rendezvous& at, std::shared_ptr<CollectiveTraffic> traffic,
                                 at::Device device = at::kCPU);

  /// Connects the groups of a mesh of all ranks. Every rank must call, at most once, before it uses the groups. Throws
  /// Error(restart) when a rank is missing.
  void arrange(const Mesh& mesh);
  const Mesh& mesh() const noexcept { return mesh_; }

  /// Closes the groups. Rank 0 holds the store of all ranks: end a successful run with `control().barrier("end")`.
  ~ProcessGroups();
  ProcessGroups(ProcessGroups&&) noexcept;
  ProcessGroups& operator=(ProcessGroups&&) noexcept;

  /// Sets this rank's place in its work, which the other ranks report when they wait for it: "in step", 12.
  void enter(const char* phase, int64_t step);
  /// Says that this rank no longer needs the others: if or how they end does not matter to it from here on.
  void leave();
  /// Tells the others that this rank ends and why, so that they end too.
  void leave(const std::exception& failure);
  /// Leaves like leave(failure), then rethrows the exception being handled: as ReportedElsewhere if it is an Error that
  /// another rank with the same failure reports to the user. From here on the process has `grace` to end, then it is
  /// ended with the exit code of the failure.
  [[noreturn]] void fail(const std::exception& failure);
  /// Sets what runs before a process is ended by force because its main thread is stuck. It runs on another thread, for
  /// at most three seconds; null: nothing. Does not return if the process is already being ended.
  void set_forced_exit_handler(std::function<void(const Error&)> on_forced_exit);

  int rank() const noexcept { return control_.rank(); }
  int world_size() const noexcept { return control_.size(); }
  bool alone() const noexcept { return world_size() == 1; }
  bool is_simulated() const noexcept { return !alone() && session_ == nullptr; }

  Group& tensors() noexcept { return tensors_; }
  Group& control() noexcept { return control_; }  // CPU tensors only
  // The groups of the mesh that this rank is in.
  Group& shards() noexcept { return mesh_.replicas > 1 || mesh_.has_parts_of_model() ? shards_ : tensors_; }
  Group& replicas() noexcept { return replicas_; }  // ranks with the same shard
  Group& layers() noexcept { return layers_; }      // ranks that share layers: a cell
  Group& context() noexcept { return context_; }    // ranks with the same samples
  Group& stages() noexcept { return stages_; }      // ranks at the same place of all stages of a pipeline, in order
  Group& ends() noexcept { return ends_; }          // the first and the last of these

  /// The ranks at the same place of this stage and of a neighbour: rank 0 is that of the stage whose activations the
  /// other one reads, and gradients go back. Groups of their own, for both directions are busy at the same time.
  struct Links {
    Group activations, gradients;
  };
  Links& to_next() noexcept { return to_next_; }          // as rank 0
  Links& to_previous() noexcept { return to_previous_; }  // as rank 1

  /// Runs `action` on rank 0 only. Every rank must call. If it throws an Error, all ranks throw: the others
  /// ReportedElsewhere with the same exit code.
  void on_rank_zero(const std::function<void()>& action, std::string name);

  /// Returns rank 0's number or bytes, on every rank; what the others give is ignored. Every rank must call.
  int64_t from_rank_zero(int64_t number, std::string name);
  std::string from_rank_zero(const std::string& bytes, const std::string& name);

  /// Returns the bytes of each rank, in order of ranks, on every rank. Every rank must call.
  std::vector<std::string> from_each_rank(const std::string& bytes, const std::string& name);

  /// Returns whether `here` is true on every rank. Every rank must call.
  bool holds_everywhere(bool here, std::string name);

  const std::vector<std::string>& hosts() const noexcept { return hosts_; }  // host name of each rank
  const std::string& description() const noexcept { return description_; }   // "gloo over eth0 (10.0.0.4)"

 private:
  struct Session;
  Group simulated_part(int rank, int size) const;

  std::unique_ptr<Session> session_;  // first, so that store and watch outlive the groups
  std::shared_ptr<CollectiveTraffic> simulated_traffic_;
  at::Device simulated_device_ = at::kCPU;
  Group control_, tensors_, shards_, replicas_, context_, layers_, stages_, ends_;
  Links to_next_, to_previous_;
  Mesh mesh_;
  std::vector<std::string> hosts_;
  std::string description_;
};

/// Lets ranks that find a mistake before they meet do so for this alone, for some ten seconds at most. Returns true if
/// this is not rank 0 and rank 0 has the same mistake, in the same `words`, and so reports it to the user.
bool is_reported_by_rank_zero(const Rendezvous& at, const std::string& program, const std::string& words);

}  // namespace gputrain::comm

// Named collectives with a deadline among the ranks of one group.
//
// Every rank calls the same collectives in the same order, one thread of it at a time. A collective that breaks off (a
// rank died, the deadline passed) throws Error(restart) with its name; the group is of no use afterwards. In a group
// of one rank nothing is sent and nothing can fail.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace gputrain::comm {

struct Connection;  // the backend behind a group
struct Transfer;    // one collective under way

/// A collective under way. Dropping it unfinished is allowed only on the way out after an error.
class Pending {
 public:
  Pending() noexcept;  // already done
  explicit Pending(std::unique_ptr<Transfer> transfer) noexcept;
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  /// Returns when the result may be used: by the host for CPU tensors, by this thread's current stream for GPU tensors.
  void wait();

 private:
  std::unique_ptr<Transfer> transfer_;
};

class Group {
 public:
  explicit Group(std::shared_ptr<Connection> connection = nullptr) noexcept;  // null: a group of one
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();

  int rank() const noexcept;
  int size() const noexcept;

  /// Adds up `tensor` over the ranks, in place. Contiguous, of the same shape and type everywhere.
  [[nodiscard]] Pending all_reduce_sum(const at::Tensor& tensor, std::string name);

  /// As all_reduce_sum, but only the root has the sum; what the others' tensors hold afterwards is of no use.
  [[nodiscard]] Pending reduce_sum(const at::Tensor& tensor, int root, std::string name);

  /// Overwrites `tensor` with the root's. Contiguous, of the same shape and type everywhere.
  void broadcast(const at::Tensor& tensor, int root, std::string name);
  [[nodiscard]] Pending start_broadcast(const at::Tensor& tensor, int root, std::string name);

  /// Every rank's tensor, stacked: [size, ...]. Contiguous, of the same shape and type everywhere.
  at::Tensor all_gather(const at::Tensor& tensor, std::string name);

  /// Returns when every rank has called it.
  void barrier(std::string name);

  /// For whoever waits for a GPU to get done with `what`, collectives among it, since `begin`: throws Error(restart)
  /// where that is in vain, or takes longer than a collective may.
  void check(const std::string& what, std::chrono::steady_clock::time_point begin);

 private:
  std::shared_ptr<Connection> connection_;
};

}  // namespace gputrain::comm

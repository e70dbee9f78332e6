// Named collectives with a deadline, among the ranks of one group.
//
// Every rank calls the same collectives in the same order, from one thread at a time. A collective that fails (a rank
// died, the deadline passed) throws Error(restart) with its name; the group cannot be used afterwards. A group of one
// rank sends nothing and never fails.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace gputrain::comm {

struct Connection;  // the c10d backend of a group
struct Transfer;    // a running collective

/// A running collective. Destroying it without wait() is allowed only while an error is being thrown.
class Pending {
 public:
  Pending() noexcept;  // already done
  explicit Pending(std::unique_ptr<Transfer> transfer) noexcept;
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  /// Returns when the result can be used: by the host for CPU tensors, by this thread's current stream for GPU tensors.
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

  /// Sums `tensor` over the ranks, in place. Contiguous, with the same shape and type on every rank.
  [[nodiscard]] Pending all_reduce_sum(const at::Tensor& tensor, std::string name);

  /// Sums like all_reduce_sum, but only the root gets the sum; the other ranks' tensors are undefined afterwards.
  [[nodiscard]] Pending reduce_sum(const at::Tensor& tensor, int root, std::string name);

  /// Sums `parts` over the ranks; each rank gets its own of the size() equal parts in `own`, which may be that part of
  /// `parts`. The rest of `parts` is undefined afterwards. Contiguous, of one type on every rank.
  [[nodiscard]] Pending reduce_scatter_sum(const at::Tensor& parts, const at::Tensor& own, std::string name);

  /// Fills `parts` with the `own` of every rank, in their order; `own` may be this rank's part of `parts`. Contiguous,
  /// of one type on every rank.
  [[nodiscard]] Pending all_gather_into(const at::Tensor& parts, const at::Tensor& own, std::string name);

  /// Overwrites `tensor` with the root's. Contiguous, with the same shape and type on every rank.
  void broadcast(const at::Tensor& tensor, int root, std::string name);
  [[nodiscard]] Pending start_broadcast(const at::Tensor& tensor, int root, std::string name);

  /// Sends `tensor` in a group of two from one rank to the other, which gives memory of the same shape and type.
  /// Contiguous.
  [[nodiscard]] Pending transfer(const at::Tensor& tensor, int from, std::string name);

  /// Returns the tensors of all ranks, stacked: [size, ...]. Contiguous, with the same shape and type on every rank.
  at::Tensor all_gather(const at::Tensor& tensor, std::string name);

  /// Returns when every rank has called it.
  void barrier(std::string name);

  /// Call while waiting for the GPU to finish `what`, collectives included, since `begin`. Throws Error(restart) if the
  /// group failed or the wait passed the collective deadline.
  void check(const std::string& what, std::chrono::steady_clock::time_point begin);

 private:
  std::shared_ptr<Connection> connection_;
};

}  // namespace gputrain::comm

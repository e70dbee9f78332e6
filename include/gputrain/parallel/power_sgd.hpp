// PowerSGD: sends the gradient of a matrix as two thin factors (Vogels, Karimireddy, Jaggi, "PowerSGD: practical
// low-rank gradient compression for distributed optimization", NeurIPS 2019, algorithms 1 and 2).
//
// Let G be the sum over ranks of a matrix's gradients [rows, columns]. The ranks all-reduce P = G Q [rows, rank], make
// its columns orthonormal, all-reduce Q = G^T P [columns, rank], and use P Q^T instead of G. The next step starts from
// this Q. The part of a rank's own gradient that is lost is its error, which is added to its next gradient. Other
// tensors, and matrices that would not shrink below half, are sent uncompressed.
//
// The orthonormal P is rank 0's and is sent with Q: the bits of a QR decomposition depend on the number of threads and
// on the kind of GPU, and replicas must be identical.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/group.hpp"
#include "gputrain/device/arena.hpp"

namespace gputrain::parallel {

class PowerSgd {
 public:
  /// The arena must keep whole gradients. Q starts from `seed` and the matrices' names, the same on all ranks.
  PowerSgd(const device::Arena& arena, int64_t rank, uint64_t seed);
  PowerSgd(const PowerSgd&) = delete;
  PowerSgd& operator=(const PowerSgd&) = delete;

  /// Everything a checkpoint needs, by name; the live tensors. With another number of ranks, the errors cannot be used.
  struct State {
    std::vector<std::pair<std::string, at::Tensor>> errors;   // [rows, columns], different per rank
    std::vector<std::pair<std::string, at::Tensor>> factors;  // Q, the same on all ranks
  };
  State state() const;

  int64_t rank() const noexcept { return rank_; }
  /// Counts the matrices not in row-major order: their errors and factors are in memory order and fit no other.
  int64_t reordered() const noexcept { return reordered_; }
  /// Returns bytes that one gradient sends.
  int64_t bytes() const noexcept;

  class Exchange;

 private:
  struct Matrix {
    std::string name;
    device::Range range;         // in the arena, with padding
    at::Tensor gradient, error;  // [rows, columns]; `gradient` is a view of the arena's gradient
    at::Tensor right;            // [columns, rank]
  };

  at::Tensor gradients_;
  std::vector<Matrix> matrices_;
  int64_t rank_, reordered_ = 0;
};

/// Sums one range of the gradient over the ranks, in three parts: start(), turn(), finish(). Parts of other ranges may
/// come in between, in the same order on every rank.
class PowerSgd::Exchange {
 public:
  /// `range` must hold whole tensors.
  Exchange(PowerSgd& all, const device::Range& range);

  void start(comm::Group& group, const std::string& name);
  void turn(comm::Group& group, const std::string& name);
  /// Returns whether the sum is finite: 0-dim bool on the device, valid after turn().
  const at::Tensor& is_finite() const noexcept { return is_finite_; }
  /// Writes the sum, as it was sent, to this range of the arena's gradient. Unless all ranges are finite, errors and
  /// factors do not change, because there will be no update.
  void finish(const at::Tensor& all_are_finite);
  /// Waits for the collective of a step that was given up.
  void abandon() { pending_.wait(); }

  int64_t bytes() const noexcept { return static_cast<int64_t>(first_.nbytes() + second_.nbytes()); }

 private:
  struct Factors {
    Matrix* of;
    at::Tensor sum;          // G Q; like the next two, a view of a send buffer
    at::Tensor left, right;  // P, zero except on rank 0, and G^T P
    at::Tensor own_right;    // before the all-reduce
  };
  std::vector<Factors> factors_;
  std::vector<std::pair<at::Tensor, at::Tensor>>
      others_;                 // sent uncompressed: the arena's gradients, and their views of the send buffer
  at::Tensor first_, second_;  // send buffers
  at::Tensor is_finite_;
  comm::Pending pending_;
};

}  // namespace gputrain::parallel

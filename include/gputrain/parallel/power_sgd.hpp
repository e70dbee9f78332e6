// PowerSGD: the gradient of a matrix travels as two thin factors (Vogels, Karimireddy, Jaggi, "PowerSGD: practical
// low-rank gradient compression for distributed optimization", NeurIPS 2019, algorithms 1 and 2).
//
// With G the sum over ranks of a matrix's gradients [rows, columns], the ranks add up P = G Q [rows, rank], make its
// columns orthonormal, add up Q = G^T P [columns, rank], and go on with P Q^T in place of G. Q is where the next step
// starts; what is missing of a rank's own gradient is its error, and added to its next gradient. Other tensors, and
// matrices that would not come to less than half, travel as they are.
//
// The orthonormal P is rank 0's, and travels with Q: the bits of a QR decomposition depend on how many threads take
// part and on the kind of GPU, and replicas must not.
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
  /// The arena keeps whole gradients. Q starts as a function of `seed` and the matrices' names, the same on all ranks.
  PowerSgd(const device::Arena& arena, int64_t rank, uint64_t seed);
  PowerSgd(const PowerSgd&) = delete;
  PowerSgd& operator=(const PowerSgd&) = delete;

  /// Everything that must be in a checkpoint, by name; the live tensors. At another number of ranks the errors belong
  /// to nobody.
  struct State {
    std::vector<std::pair<std::string, at::Tensor>> errors;   // [rows, columns], each rank's own
    std::vector<std::pair<std::string, at::Tensor>> factors;  // Q, the same on all ranks
  };
  State state() const;

  int64_t rank() const noexcept { return rank_; }
  /// Matrices whose elements are not in row-major order: errors and factors, in the order of memory, fit no other.
  int64_t reordered() const noexcept { return reordered_; }
  /// Of one gradient as it travels.
  int64_t bytes() const noexcept;

  class Exchange;

 private:
  struct Matrix {
    std::string name;
    device::Range range;         // in the arena, with padding
    at::Tensor gradient, error;  // [rows, columns], of which the first is a view of the arena's gradient
    at::Tensor right;            // [columns, rank]
  };

  at::Tensor gradients_;
  std::vector<Matrix> matrices_;
  int64_t rank_, reordered_ = 0;
};

/// Adds up one stretch of the gradient, in three parts; those of other stretches may come in between, in the same order
/// on every rank.
class PowerSgd::Exchange {
 public:
  /// `range` holds whole tensors.
  Exchange(PowerSgd& all, const device::Range& range);

  void start(comm::Group& group, const std::string& name);
  void turn(comm::Group& group, const std::string& name);
  /// Whether the sum is finite; after turn(). 0-dim bool on the device.
  const at::Tensor& is_finite() const noexcept { return is_finite_; }
  /// The stretch of the arena's gradient now holds the sum, as far as it has travelled. Unless all stretches are
  /// finite, errors and factors stay as they were: there will be no update.
  void finish(const at::Tensor& all_are_finite);
  /// Waits for what is under way, of a step that was given up.
  void abandon() { pending_.wait(); }

  int64_t bytes() const noexcept { return static_cast<int64_t>(first_.nbytes() + second_.nbytes()); }

 private:
  struct Factors {
    Matrix* of;
    at::Tensor sum;          // G Q; this and the next two are views of what is sent
    at::Tensor left, right;  // P, which rank 0 alone adds to, and G^T P
    at::Tensor own_right;    // before it was added up
  };
  std::vector<Factors> factors_;
  std::vector<std::pair<at::Tensor, at::Tensor>>
      others_;                 // gradients that travel as they are: ours, and views of what is sent
  at::Tensor first_, second_;  // what is sent
  at::Tensor is_finite_;
  comm::Pending pending_;
};

}  // namespace gputrain::parallel

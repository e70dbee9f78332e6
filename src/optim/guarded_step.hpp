// Shared by rules that are made of ATen's operators: an update that a non-finite gradient turns into nothing, without
// reading the device.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/optim/optimizer.hpp"

namespace gputrain::optim {

/// The scalars of one update. They and gradients have the type of values, but at least fp32. If found_inf is 1,
/// gradients read as zero, and every share of something new, rates included, is 0: values and state stay as they are,
/// to the bit.
class GuardedStep {
 public:
  GuardedStep(const StepScalars& scalars, const at::Tensor& values);

  /// Returns the gradient unscaled and finite; `gradient` itself if nothing is to do.
  at::Tensor gradient(const at::Tensor& gradient) const;

  /// Returns lr * factor, 0-dim, in the type of values.
  at::Tensor rate(double factor) const;
  /// Returns `share` for a new value, or its complement 1 - share, for state.mul_(). 0-dim, in the type of values.
  at::Tensor share(double share) const;
  at::Tensor complement(double share) const;
  /// Returns 1 - lr * factor * decay, by which decoupled decay multiplies values. 0-dim, in the type of values.
  at::Tensor decay(double factor, double weight_decay) const;
  /// Returns any 0-dim double, times 0 if the update is to do nothing.
  at::Tensor guarded(const at::Tensor& number) const;

  const at::Tensor& lr() const noexcept { return lr_; }  // 0-dim double, as given
  /// Returns `after` if the update is made, else `before`. Both have the same sizes and type, which may be any.
  at::Tensor either(const at::Tensor& after, const at::Tensor& before) const;

 private:
  at::ScalarType type_;
  at::Tensor lr_, keep_, skip_, divisor_;
};

/// A count of an update in `step`, 0-dim, while in scope; for good unless found_inf.
class CountedStep {
 public:
  CountedStep(const at::Tensor& step, const StepScalars& scalars);
  ~CountedStep();
  CountedStep(const CountedStep&) = delete;
  CountedStep& operator=(const CountedStep&) = delete;

 private:
  at::Tensor step_, found_inf_;
};

/// Views of neighbouring elements, each small enough that what an update allocates beside them stays small.
struct UpdatePiece {
  at::Tensor value, gradient;
  std::vector<at::Tensor> states;
  ops::RoundedElements rounded = {};  // those of UpdateRange
};
std::vector<UpdatePiece> pieces_of(const UpdateGroup& group, const device::Arena& arena,
                                   const std::vector<at::Tensor>& states);

/// Adds "since.<parameter>" of each parameter that is trained late; see Optimizer::count_since().
void add_counts(Optimizer::State& state, const std::map<std::string, double>& since, const at::Tensor& like);

}  // namespace gputrain::optim

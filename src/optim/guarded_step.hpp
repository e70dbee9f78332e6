// Shared by rules that are made of ATen's operators: an update that a non-finite gradient turns into nothing, without
// reading the device.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/optim/optimizer.hpp"

namespace gputrain::optim {

/// The scalars of one update. They and gradients have the type of values, but at least fp32. Where found_inf is 1,
/// gradients read as zero, and every share that is taken of something new, rates included, is 0: values and state stay
/// as they are, to the bit.
class GuardedStep {
 public:
  GuardedStep(const StepScalars& scalars, const at::Tensor& values);

  /// Unscaled and finite; `gradient` itself if nothing is to do.
  at::Tensor gradient(const at::Tensor& gradient) const;

  /// 0-dim, of the type of values: lr * factor.
  at::Tensor rate(double factor) const;
  /// 0-dim, of the type of values: `share` of what is new. Its complement, for state.mul_(): 1 - share.
  at::Tensor share(double share) const;
  at::Tensor complement(double share) const;
  /// 0-dim, of the type of values: 1 - lr * factor * decay, by which decoupled decay multiplies values.
  at::Tensor decay(double factor, double weight_decay) const;
  /// The same for any 0-dim double: times 0 if the update is to do nothing.
  at::Tensor guarded(const at::Tensor& number) const;

  const at::Tensor& lr() const noexcept { return lr_; }  // 0-dim double, as given
  /// `after` an update that is made, else `before`. Of any sizes and type, which both share.
  at::Tensor either(const at::Tensor& after, const at::Tensor& before) const;

 private:
  at::ScalarType type_;
  at::Tensor lr_, keep_, skip_, divisor_;
};

/// Counts an update in `step`, 0-dim, while in scope; for good unless found_inf.
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
  ops::RoundedElements rounded = {};  // as in UpdateRange
};
std::vector<UpdatePiece> pieces_of(const UpdateGroup& group, const device::Arena& arena,
                                   const std::vector<at::Tensor>& states);

/// "since.<parameter>" of each that is trained late; see Optimizer::count_since().
void add_counts(Optimizer::State& state, const std::map<std::string, double>& since, const at::Tensor& like);

/// `ratio`, but 1 where the norm of a tensor or of its update is 0. All 0-dim.
at::Tensor trust_ratio(const at::Tensor& norm, const at::Tensor& update_norm, const at::Tensor& ratio);

}  // namespace gputrain::optim

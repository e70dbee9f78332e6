#include "guarded_step.hpp"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace gputrain::optim {

GuardedStep::GuardedStep(const StepScalars& scalars, const at::Tensor& values)
    : type_(values.scalar_type() == at::kBFloat16 ? at::kFloat : values.scalar_type()),
      lr_(scalars.lr.to(at::kDouble)),
      keep_(at::ones_like(lr_)) {
  if (scalars.found_inf) {
    skip_ = scalars.found_inf->squeeze(0).ne(0);
    keep_ = 1 - skip_.to(at::kDouble);
  }
  if (scalars.divisor) divisor_ = scalars.divisor->squeeze(0).to(type_);
}

at::Tensor GuardedStep::gradient(const at::Tensor& gradient) const {
  const at::Tensor wide = gradient.to(type_), unscaled = divisor_.defined() ? wide.div(divisor_) : wide;
  return skip_.defined() ? at::where(skip_, at::zeros({}, wide.options()), unscaled) : unscaled;
}

at::Tensor GuardedStep::guarded(const at::Tensor& number) const { return number.mul(keep_).to(type_); }

at::Tensor GuardedStep::rate(double factor) const { return guarded(lr_ * factor); }

at::Tensor GuardedStep::share(double share) const { return (keep_ * share).to(type_); }

at::Tensor GuardedStep::complement(double share) const { return (1 - keep_ * share).to(type_); }

at::Tensor GuardedStep::decay(double factor, double weight_decay) const {
  return (1 - lr_ * keep_ * (factor * weight_decay)).to(type_);
}

at::Tensor GuardedStep::either(const at::Tensor& after, const at::Tensor& before) const {
  return skip_.defined() ? at::where(skip_, before, after) : after;
}

CountedStep::CountedStep(const at::Tensor& step, const StepScalars& scalars) : step_(step) {
  if (scalars.found_inf) found_inf_ = scalars.found_inf->squeeze(0);
  step_.add_(1);
}

CountedStep::~CountedStep() {
  if (found_inf_.defined()) step_.sub_(found_inf_);
}

std::vector<UpdatePiece> pieces_of(const UpdateGroup& group, const device::Arena& arena,
                                   const std::vector<at::Tensor>& states) {
  // On a CPU, what one piece needs stays in the cache. On a GPU, a kernel takes longer than its launch.
  const int64_t most = arena.kept_values().is_cpu() ? int64_t{1} << 16 : int64_t{1} << 24;
  std::vector<UpdatePiece> pieces;
  for (const UpdateRange& range : group.ranges) {
    for (int64_t begin = 0; begin < range.size; begin += most) {
      const int64_t size = std::min(most, range.size - begin);
      UpdatePiece piece{.value = arena.kept_values().narrow(0, range.values_at + begin, size),
                        .gradient = arena.kept_gradients().narrow(0, range.gradients_at + begin, size),
                        .states = {},
                        .rounded = {.key = range.rounded.key, .begin = range.rounded.begin + begin}};
      for (const at::Tensor& state : states) piece.states.push_back(state.narrow(0, range.state_at + begin, size));
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

void add_counts(Optimizer::State& state, const std::map<std::string, double>& since, const at::Tensor& like) {
  for (const auto& [name, count] : since)
    state.scalars.emplace_back(Optimizer::kSincePrefix + name, at::full_like(like, count));
}

}  // namespace gputrain::optim

#include "synchronised_batch_norm.hpp"

#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gputrain/comm/group.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/ops/linear.hpp"

namespace gputrain::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::array<int64_t, 3> kAllButChannels{0, 2, 3};

at::Tensor wide(const at::Tensor& x) { return cast(x, x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat); }

/// Reshapes [channels] to broadcast with [batch, channels, height, width], in the type of `like`.
at::Tensor beside(const at::Tensor& like, const at::Tensor& per_channel) {
  return per_channel.to(like.scalar_type()).view({1, -1, 1, 1});
}

/// Per channel: number of values, their mean, and the sum of their squared distances from it.
struct Moments {
  at::Tensor count, mean, squares;  // [channels] in double
};

Moments moments_of(const at::Tensor& x) {
  const int64_t count = x.numel() / x.size(1);
  const at::Tensor none = at::zeros({x.size(1)}, x.options().dtype(at::kDouble));
  if (count == 0) return {none, none, none};
  const auto [variance, mean] = at::var_mean(wide(x), kAllButChannels, /*correction=*/0, /*keepdim=*/false);
  return {none + count, mean.to(at::kDouble), variance.to(at::kDouble) * count};
}

/// Moments of all ranks' values together. Plain sums of squares would cancel if the mean is large, so distances are
/// taken from the common mean. (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983)
Moments over_ranks(const Moments& own, comm::Group& group) {
  const at::Tensor all = group.all_gather(at::stack({own.count, own.mean, own.squares}), "batch-norm statistics");
  const at::Tensor counts = all.select(1, 0), means = all.select(1, 1), squares = all.select(1, 2);
  const at::Tensor count = counts.sum(0), mean = (counts * means).sum(0) / count;
  return {count, mean, (squares + counts * (means - mean).square()).sum(0)};
}

void follow(const at::Tensor& running, const at::Tensor& value, double momentum) {
  running.mul_(1 - momentum).add_(value.to(running.scalar_type()), momentum);
}

struct GroupOfNode : torch::CustomClassHolder {
  explicit GroupOfNode(comm::Group& given) : group(given) {}
  comm::Group& group;
};

struct SynchronisedBatchNorm : torch::autograd::Function<SynchronisedBatchNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& running_mean, const at::Tensor& running_var,
                            const BatchNormOptions& options) {
    const Moments all = over_ranks(moments_of(x), *options.group);
    const at::Tensor variance = all.squares / all.count;
    follow(running_mean, all.mean, options.momentum);
    follow(running_var, all.squares / (all.count - 1).clamp_min(1), options.momentum);
    context->save_for_backward({x, weight, all.mean, (variance + options.eps).rsqrt(), all.count});
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<GroupOfNode>(*options.group));
    if (x.numel() == 0) return at::empty_like(x);
    const at::ScalarType type = weight.scalar_type();
    return at::batch_norm(x, weight, bias, all.mean.to(type), variance.to(type), /*training=*/false, 0, options.eps,
                          /*cudnn_enabled=*/true);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the synchronised batch norm has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &rstd = saved[3], &count = saved[4];
    const at::Tensor dy = wide(gradients[0]), distance = wide(x) - beside(dy, mean);
    const at::Tensor own = at::stack({dy.sum(kAllButChannels), (dy * distance).sum(kAllButChannels)}).to(at::kDouble);
    const at::Tensor all = own.clone();  // `own` is this rank's part of the gradients of weight and bias
    auto& group = static_cast<GroupOfNode&>(*context->saved_data["group"].toCapsule()).group;
    group.all_reduce_sum(all, "batch-norm gradient sums").wait();
    const at::Tensor shares = all / count;
    at::Tensor dx = distance.mul_(beside(dy, -shares[1] * rstd * rstd)).sub_(beside(dy, shares[0])).add_(dy);
    dx = dx.mul_(beside(dy, weight * rstd)).to(x.scalar_type());
    const at::ScalarType type = weight.scalar_type();
    return {dx, (own[1] * rstd).to(type), own[0].to(type), {}, {}, {}};
  }
};

}  // namespace

at::Tensor synchronised_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                   const at::Tensor& running_mean, const at::Tensor& running_var,
                                   const BatchNormOptions& options) {
  return SynchronisedBatchNorm::apply(x, weight, bias, running_mean, running_var, options);
}

}  // namespace gputrain::ops

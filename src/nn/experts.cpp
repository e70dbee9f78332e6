#include "gputrain/nn/experts.hpp"

#include <stdexcept>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "gputrain/device/runtime.hpp"
#include "gputrain/ops/grouped_linear.hpp"
#include "gputrain/ops/linear.hpp"
#include "gputrain/ops/recorded.hpp"

namespace gputrain::nn {
namespace {

/// Lets every expert read all rows, so that no size depends on which of them a row has chosen. `experts`, `weights`
/// [rows, chosen ones].
at::Tensor sum_of_all(const std::vector<FeedForward*>& all, const at::Tensor& rows, const at::Tensor& experts,
                      const at::Tensor& weights) {
  const at::Tensor none = at::zeros({rows.size(0), std::ssize(all)}, weights.options());
  const at::Tensor shares = none.scatter(1, experts, weights);
  at::Tensor sum;
  for (int64_t i = 0; i < std::ssize(all); ++i) {
    const at::Tensor part = at::mul(all[static_cast<size_t>(i)]->forward(rows), shares.narrow(1, i, 1));
    sum = sum.defined() ? at::add(sum, part) : part;
  }
  return sum;
}

}  // namespace

Experts::Experts(const Context& context, const Options& options) : Module(context), options_(options) {
  gate_ = add_child<Linear>("gate", context,
                            Linear::Options{.in = options.expert.channels,
                                            .out = options.count,
                                            .bias = false,
                                            .weight_init = options.expert.weight_init});
  for (int64_t i = 0; i < options.count; ++i)
    experts_.push_back(add_child<FeedForward>("experts." + std::to_string(i), context, options.expert));
}

namespace {

at::Tensor probabilities_of(const at::Tensor& logits) {
  return at::softmax(logits, -1, logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

at::Tensor mean_of_counted(const at::Tensor& rows, const at::Tensor& counted) {
  if (!counted.defined()) return at::mean(rows, 0);
  const at::Tensor weights = counted.to(rows.scalar_type());
  return at::mv(rows.t(), weights) / at::sum(weights).clamp_min(1);
}

/// Repeats it for each layer; undefined stays undefined.
at::Tensor repeated(const at::Tensor& counted, size_t layers) {
  return counted.defined() ? counted.repeat({static_cast<int64_t>(layers)}) : counted;
}

}  // namespace

at::Tensor RouterLosses::balance(const std::vector<at::Tensor>& logits, int64_t per_token, const at::Tensor& counted) {
  const at::Tensor all = at::cat(logits), probabilities = probabilities_of(all);
  const at::Tensor chosen = std::get<1>(at::topk(probabilities.detach(), per_token, -1));
  const at::Tensor choices = at::zeros_like(probabilities).scatter_(1, chosen, 1),
                   of_all = repeated(counted, logits.size());
  const at::Tensor shares = mean_of_counted(choices, of_all), means = mean_of_counted(probabilities, of_all);
  return at::sum(at::mul(shares, means)) * all.size(1);
}

at::Tensor RouterLosses::z(const std::vector<at::Tensor>& logits, const at::Tensor& counted) {
  const at::Tensor all = at::cat(logits);
  const at::Tensor wide = all.scalar_type() == at::kDouble ? all : all.to(at::kFloat);
  return mean_of_counted(at::logsumexp(wide, -1).square().unsqueeze(1), repeated(counted, logits.size())).squeeze(0);
}

void add_expert_counts(const at::Tensor& counts, const std::vector<at::Tensor>& logits, int64_t per_token,
                       const at::Tensor& counted) {
  for (size_t layer = 0; layer < logits.size(); ++layer) {
    const at::Tensor chosen = std::get<1>(at::topk(logits[layer].detach(), per_token, -1));
    const at::Tensor each = counted.defined() ? counted.to(counts.scalar_type()).unsqueeze(1).expand(chosen.sizes())
                                              : at::ones(chosen.sizes(), counts.options());
    counts.select(0, static_cast<int64_t>(layer)).scatter_add_(0, chosen.flatten(), each.flatten());
  }
}

Experts::Routes Experts::routes_of(const at::Tensor& logits, at::ScalarType type) const {
  const at::Tensor probabilities = probabilities_of(logits);
  auto [weights, experts] = at::topk(probabilities, options_.per_token, -1);
  if (options_.scales_to_one) weights = at::div(weights, at::sum(weights, -1, true));
  return {.experts = experts, .weights = ops::cast(weights, type)};
}

at::Tensor Experts::apply(const at::Tensor& rows, const std::vector<int64_t>& counts) const {
  std::vector<at::Tensor> results;
  int64_t begin = 0;
  for (size_t i = 0; i < experts_.size(); ++i) {
    const int64_t count = counts[i];
    if (count == 0 && !at::GradMode::is_enabled()) continue;
    results.push_back(experts_[i]->forward(rows.narrow(0, begin, count)));
    begin += count;
  }
  return at::cat(results);
}

Experts::Mixed Experts::forward(const at::Tensor& x) const {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const int64_t tokens = rows.size(0), per_token = options_.per_token;
  const at::Tensor logits = gate_->forward(rows);
  const auto [experts, weights] = routes_of(logits, rows.scalar_type());
  if (ops::is_recorded()) return {sum_of_all(experts_, rows, experts, weights).view(x.sizes()), logits};
  const at::Tensor chosen = experts.flatten();
  // Each row is copied once for each of its experts and taken from there by unique numbers, there and back, so that
  // gradients are added in the same order every time.
  const at::Tensor copies = rows.unsqueeze(1).expand({tokens, per_token, rows.size(1)}).reshape({-1, rows.size(1)});
  const at::Tensor results = goes_in_blocks(x) ? in_blocks(copies, chosen) : one_by_one(copies, chosen);
  const at::Tensor by_token = results.view({tokens, per_token, -1});
  return {at::sum(at::mul(by_token, weights.unsqueeze(-1)), 1).view(x.sizes()), logits};
}

bool Experts::goes_in_blocks(const at::Tensor& x) const { return x.is_cuda() && FeedForward::can_be_grouped(experts_); }

at::Tensor Experts::in_blocks(const at::Tensor& rows, const at::Tensor& chosen) const {
  const ops::RowBlocks blocks(chosen, options_.count);
  return blocks.in_order(FeedForward::forward_grouped(experts_, blocks.arranged(rows), blocks.groups()));
}

at::Tensor Experts::one_by_one(const at::Tensor& rows, const at::Tensor& chosen) const {
  if (device::is_capturing(rows.device())) throw std::runtime_error("the host reads how many tokens each expert gets");
  const at::Tensor counted = at::bincount(chosen, {}, options_.count).cpu();
  const std::vector<int64_t> counts(counted.const_data_ptr<int64_t>(),
                                    counted.const_data_ptr<int64_t>() + counted.numel());
  const at::Tensor order = at::argsort(chosen, /*stable=*/true, /*dim=*/0);
  return apply(rows.index_select(0, order), counts).index_select(0, at::argsort(order));
}

}  // namespace gputrain::nn

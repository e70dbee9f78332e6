#include "class_loss.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/mixing.hpp"
#include "gputrain/tasks/cross_entropy.hpp"
#include "gputrain/tasks/logits.hpp"

namespace gputrain::tasks {
namespace {

/// Returns [rows, classes]: 1 at the target, and nothing where it does not count.
at::Tensor one_hot(const at::Tensor& targets, int64_t classes, at::ScalarType type) {
  return targets.unsqueeze(-1).eq(at::arange(classes, targets.options())).to(type);
}

[[noreturn]] void refuse_weights(const std::string& what) {
  throw Error(ExitCode::usage, {.what = what, .where = "task.config.class_weights"});
}

std::vector<double> balanced_weights(const data::Dataset& dataset) {
  const std::vector<int64_t> counts = data::class_counts(dataset);
  const int64_t samples = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const auto classes = static_cast<double>(std::ranges::count_if(counts, [](int64_t count) { return count > 0; }));
  std::vector<double> weights;
  for (const int64_t count : counts)
    weights.push_back(count == 0 ? 0 : static_cast<double>(samples) / (classes * static_cast<double>(count)));
  return weights;
}

}  // namespace

void ClassLossSpec::check(const ClassLossSpec& spec, config::SpecIssues& issues) {
  const ClassLossSpec usual;
  const auto refuse = [&](const char* key, const char* loss) {
    issues.add(key, std::string("it is of loss: ") + loss + ", but loss is " + spec.loss);
  };
  if (spec.loss != "bce" && spec.target_threshold) refuse("target_threshold", "bce");
  if (spec.loss != "bce" && spec.sum_classes) refuse("sum_classes", "bce");
  if (spec.loss != "focal" && spec.gamma != usual.gamma) refuse("gamma", "focal");
  if (spec.loss != "focal" && spec.alpha != usual.alpha) refuse("alpha", "focal");
}

std::vector<double> weights_of_classes(const ClassWeights& wanted, const TaskRequest& request) {
  if (!wanted) return {};
  if (wanted->is_auto() && (request.train == nullptr || request.train->size() == 0)) return {};  // nothing is learned
  std::vector<double> weights = wanted->is_auto() ? balanced_weights(*request.train) : *wanted->value;
  if (std::ssize(weights) != request.layout.outputs)
    refuse_weights(counted(std::ssize(weights), "weight") + " for " + counted(request.layout.outputs, "class"));
  if (std::ranges::all_of(weights, [](double weight) { return weight == 0; }))
    refuse_weights("no class has a weight above 0");
  return weights;
}

ClassLoss::ClassLoss(const ClassLossSpec& spec, const TaskRequest& request)
    : spec_(spec),
      smoothing_(request.label_smoothing),
      class_weights_(weights_of_classes(spec.class_weights, request)) {}

ops::Loss ClassLoss::operator()(models::Model& model, const Batch& batch, const at::Tensor& weight) const {
  const bool is_mixed = batch.find(data::kMixedPart) != nullptr;
  if (is_fused()) return (is_mixed ? mixed_cross_entropy_loss : cross_entropy_loss)(model, batch, smoothing_, weight);
  const at::Tensor logits = wide_logits(model, batch);
  return loss_of_sum(losses(logits, wanted(batch, logits, smoothing_)), weight);
}

at::Tensor ClassLoss::evaluate(models::Model& model, const Batch& batch,
                               const std::function<void(const at::Tensor&, const at::Tensor&)>& visit) const {
  if (is_fused()) return evaluate_cross_entropy(model, batch, visit);
  const at::NoGradGuard no_grad;
  const at::Tensor logits = wide_logits(model, batch);
  visit(logits, batch.tensor(kTarget));
  return losses(logits, wanted(batch, logits, 0)).sum(at::kDouble);
}

at::Tensor ClassLoss::each(const at::Tensor& logits, const at::Tensor& targets) const {
  const at::Tensor values = wide(logits);
  return of_probabilities(values, one_hot(targets, logits.size(-1), values.scalar_type()));
}

at::Tensor ClassLoss::probabilities(const at::Tensor& logits) const {
  return spec_.loss == "cross_entropy" ? at::softmax(logits, -1) : at::sigmoid(logits);
}

at::Tensor ClassLoss::weight_of(const at::Tensor& targets) const {
  const int64_t classes = std::ssize(class_weights_);
  return one_hot(targets, classes, at::kDouble).mul(weights_on(targets.device(), classes)).sum();
}

/// Returns the weights of `classes` classes: a model may have more than the data, with weight 1.
at::Tensor ClassLoss::weights_on(at::Device device, int64_t classes) const {
  if (!weights_.defined() || weights_.device() != device || weights_.size(0) < classes) {
    std::vector<double> all = class_weights_;
    all.resize(static_cast<size_t>(std::max<int64_t>(classes, std::ssize(all))), 1);
    weights_ = at::tensor(all, at::kDouble).to(device);
  }
  return weights_.narrow(0, 0, classes);
}

ClassLoss::Wanted ClassLoss::wanted(const Batch& batch, const at::Tensor& logits, double smoothing) const {
  const int64_t classes = logits.size(-1);
  const at::ScalarType type = logits.scalar_type();
  at::Tensor parts = one_hot(batch.tensor(kTarget), classes, type);
  if (batch.find(data::kMixedPart) != nullptr) {
    const at::Tensor part = batch.tensor(data::kMixedPart).unsqueeze(-1).to(type);
    parts = parts * part + one_hot(batch.tensor(data::kMixedTarget), classes, type) * at::rsub(part, 1);
  }
  const at::Tensor counts = parts.sum(-1);
  const at::Tensor weights =
      class_weights_.empty() ? counts : parts.mul(weights_on(parts.device(), classes).to(type)).sum(-1);
  at::Tensor probabilities = parts / at::clamp_min(counts, 1e-12).unsqueeze(-1);
  if (smoothing > 0) probabilities = probabilities * (1 - smoothing) + smoothing / static_cast<double>(classes);
  return {.probabilities = std::move(probabilities), .counts = counts, .weights = weights};
}

/// Returns the loss of each row, with the weight of its class. In the cross entropy each class has its weight, also
/// where targets are smoothed, as in torch. The others are weighted by sample (Cui et al., arXiv:1901.05555).
at::Tensor ClassLoss::losses(const at::Tensor& logits, const Wanted& wanted) const {
  if (spec_.loss != "cross_entropy") return of_probabilities(logits, wanted.probabilities) * wanted.weights;
  const at::Tensor weights = weights_on(logits.device(), logits.size(-1)).to(logits.scalar_type());
  return of_probabilities(logits, wanted.probabilities * weights) * wanted.counts;
}

at::Tensor ClassLoss::of_probabilities(const at::Tensor& logits, const at::Tensor& probabilities) const {
  if (spec_.loss == "cross_entropy") return (probabilities * at::log_softmax(logits, -1)).sum(-1).neg();
  const auto entropies = [&](const at::Tensor& truth) {
    return at::binary_cross_entropy_with_logits(logits, truth, {}, {}, at::Reduction::None);
  };
  if (spec_.loss == "bce") {
    const auto& threshold = spec_.target_threshold;
    const at::Tensor each =
        entropies(threshold ? at::gt(probabilities, *threshold).to(logits.scalar_type()) : probabilities);
    return spec_.sum_classes ? each.sum(-1) : each.mean(-1);
  }
  const at::Tensor guesses = at::sigmoid(logits), others = at::rsub(probabilities, 1);
  const at::Tensor missed = at::rsub(guesses * probabilities + at::rsub(guesses, 1) * others, 1);
  // With a gamma below 1, the power has no derivative at 0, to which the sigmoid rounds.
  at::Tensor each = entropies(probabilities) * at::pow(at::clamp_min(missed, 1e-12), spec_.gamma);
  if (spec_.alpha) each = each * (probabilities * *spec_.alpha + others * (1 - *spec_.alpha));
  return each.sum(-1);
}

}  // namespace gputrain::tasks

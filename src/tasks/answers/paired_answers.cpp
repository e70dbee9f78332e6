#include "paired_answers.hpp"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sub.h>

#include "gputrain/data/answer_fields.hpp"
#include "gputrain/nn/recompute.hpp"
#include "gputrain/tasks/logits.hpp"

namespace gputrain::tasks {
namespace {

Metric mean_of_pairs(const char* name, Metric::Use use, double factor = 1, const char* unit = "") {
  return {.name = name, .unit = unit, .use = use, .finish = [name, factor](const Totals& totals) {
            return factor * totals.sums.at(name) / std::max(1.0, totals.weight);
          }};
}

}  // namespace

bool PairedAnswers::fits(const TaskRequest& request) {
  const bool is_packed = request.layout.find(data::kTextOfToken) != nullptr;
  return request.layout.find(kRejectedTokens) != nullptr ||
         (is_packed && request.layout.find(data::kIsGood) == nullptr);
}

std::vector<Metric> PairedAnswers::measures() {
  Metric loss = mean_of_pairs("loss", Metric::Use::result);
  loss.smaller_is_better = true;
  return {loss, mean_of_pairs("accuracy", Metric::Use::best, 100, "%"), mean_of_pairs("margin", Metric::Use::detail),
          mean_of_pairs("chosen_reward", Metric::Use::detail), mean_of_pairs("rejected_reward", Metric::Use::detail)};
}

ops::Loss PairedAnswers::loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const {
  const nn::ForwardPass pass;
  return loss_of_sum(judge(model, batch, smoothing_).losses, weight);
}

Tally::Parts PairedAnswers::parts() const {
  return {.sums = {"loss", "accuracy", "margin", "chosen_reward", "rejected_reward"}};
}

void PairedAnswers::evaluate(models::Model& model, const Batch& batch, Tally& tally) const {
  const auto [losses, chosen, rejected] = judge(model, batch, 0);
  tally.add("loss", losses.sum());
  tally.add("accuracy", at::gt(chosen, rejected).sum());
  tally.add("margin", at::sub(chosen, rejected).sum());
  tally.add("chosen_reward", chosen.sum());
  tally.add("rejected_reward", rejected.sum());
}

at::Tensor logistic_losses(const at::Tensor& margins, double smoothing) {
  const at::Tensor losses = at::log_sigmoid(margins).neg();
  return smoothing == 0 ? losses : losses * (1 - smoothing) - at::log_sigmoid(margins.neg()) * smoothing;
}

}  // namespace gputrain::tasks

// Kahneman-Tversky optimization (Ethayarajh et al., arXiv:2402.01306).
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "answers.hpp"
#include "gputrain/data/answer_fields.hpp"
#include "gputrain/nn/recompute.hpp"
#include "gputrain/tasks/logits.hpp"

namespace gputrain::tasks {
namespace {

struct KtoSpec {
  double beta = 0.1, desirable_weight = 1, undesirable_weight = 1;

  static void describe(config::Description<KtoSpec>& d) {
    d.summary("answers that are good or bad, without moving far from the model as it is before training");
    d.key("beta", &KtoSpec::beta, "how much moving away from that model counts against it: more keeps it nearer")
        .above(0);
    d.key("desirable_weight", &KtoSpec::desirable_weight, "weight of the losses of good answers").at_least(0);
    d.key("undesirable_weight", &KtoSpec::undesirable_weight, "weight of the losses of bad answers").at_least(0);
  }
};

class Kto final : public Task {
 public:
  Kto(const KtoSpec& spec, const TaskRequest&) : spec_(spec) {}

  static Target target() { return Target::rating; }
  static Target head() { return Target::next_token; }
  static Abilities abilities() { return {.compares_samples = true}; }
  static bool fits(const TaskRequest& request) { return request.layout.find(data::kIsGood) != nullptr; }

  static std::vector<Metric> measures() {
    const auto mean = [](const char* sum, const char* count) {
      return [sum, count](const Totals& t) { return t.sums.at(sum) / std::max(1.0, t.sums.at(count)); };
    };
    return {
        {.name = "loss", .smaller_is_better = true, .use = Metric::Use::best, .finish = mean("loss", "samples")},
        {.name = "margin",
         .finish =
             [mean](const Totals& t) { return mean("chosen_reward", "good")(t) - mean("rejected_reward", "bad")(t); }},
        {.name = "chosen_reward", .finish = mean("chosen_reward", "good")},
        {.name = "rejected_reward", .finish = mean("rejected_reward", "bad")},
        {.name = "kl", .smaller_is_better = true, .finish = mean("kl", "samples")}};
  }

  int64_t reference_numbers() const override { return 2; }

  at::Tensor reference(models::Model& model, const Batch& batch) const override {
    const auto answers = answer_log_probs(model, batch, {kOwn, kUnrelated});
    return at::stack({answers[0].sums, answers[1].sums}, 1);
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    const nn::ForwardPass pass;
    return loss_of_sum(judge(model, batch, groups()).losses, weight);
  }

  Tally::Parts parts() const override {
    return {.sums = {"loss", "samples", "chosen_reward", "good", "rejected_reward", "bad", "kl"}};
  }

  /// Estimates the divergence from each batch of this rank.
  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    const Judged judged = judge(model, batch, nullptr);
    const at::Tensor good = judged.is_good.logical_and(judged.is_read),
                     bad = judged.is_good.logical_not().logical_and(judged.is_read);
    tally.add("loss", judged.losses.sum());
    tally.add("samples", judged.is_read.sum());
    tally.add("chosen_reward", (judged.rewards * good).sum());
    tally.add("good", good.sum());
    tally.add("rejected_reward", (judged.rewards * bad).sum());
    tally.add("bad", bad.sum());
    tally.add("kl", judged.divergence * judged.is_read.sum());
  }

 private:
  static constexpr AnswerField kOwn{kTokens, kTarget}, kUnrelated{data::kUnrelatedTokens, data::kUnrelatedTarget};

  struct Judged {
    at::Tensor losses, rewards, is_good, is_read;  // [samples]
    at::Tensor divergence;                         // 0-dim
  };

  /// Judges answers. With `groups`, the divergence is that of the samples of all ranks.
  Judged judge(models::Model& model, const Batch& batch, comm::ProcessGroups* groups) const {
    // Answers to other prompts need no graph; but where they share rows with the others, one pass is cheaper.
    std::vector<AnswerLogProbs> answers;
    if (is_packed(batch)) {
      answers = answer_log_probs(model, batch, {kOwn, kUnrelated});
    } else {
      answers.push_back(answer_log_probs(model, batch, {kOwn})[0]);
      const at::NoGradGuard no_grad;
      answers.push_back(answer_log_probs(model, batch, {kUnrelated})[0]);
    }
    const auto before = numbers_before(batch, 2, answers[0].sums);
    Judged judged{.losses = {},
                  .rewards = {},
                  .is_good = batch.tensor(data::kIsGood).narrow(0, 0, batch.samples).flatten().gt(0.5),
                  .is_read = answers[0].counts.gt(0),
                  .divergence = divergence(answers[1], before[1], groups)};
    const at::Tensor moved = answers[0].sums - before[0];
    const at::Tensor beyond = (moved - judged.divergence) * spec_.beta;
    const at::Tensor good = at::sigmoid(beyond.neg()) * spec_.desirable_weight,
                     bad = at::sigmoid(beyond) * spec_.undesirable_weight;
    judged.losses = at::where(judged.is_good, good, bad) * judged.is_read;
    judged.rewards = moved * spec_.beta;
    return judged;
  }

  /// Returns how far the model has moved: the mean over prompts with answers to other prompts, at least 0.
  static at::Tensor divergence(const AnswerLogProbs& unrelated, const at::Tensor& before, comm::ProcessGroups* groups) {
    const at::NoGradGuard no_grad;
    const at::Tensor is_read = unrelated.counts.gt(0);
    const at::Tensor sums = at::stack(
        {((unrelated.sums.detach() - before) * is_read).sum().to(at::kDouble), is_read.sum().to(at::kDouble)});
    if (groups != nullptr && !groups->alone()) groups->tensors().all_reduce_sum(sums, "divergence of answers").wait();
    return at::clamp_min(sums[0] / at::clamp_min(sums[1], 1), 0).to(before.scalar_type());
  }

  KtoSpec spec_;
};

const config::Registered<Kto, KtoSpec> registered_kto{catalog(), "kto",
                                                      "whether answers are good (KTO); loss, rewards and divergence"};

}  // namespace
}  // namespace gputrain::tasks

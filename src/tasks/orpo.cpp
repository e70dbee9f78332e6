// Odds ratio preference optimization (Hong et al., arXiv:2403.07691).
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/lt.h>

#include "answers.hpp"
#include "paired_answers.hpp"

namespace gputrain::tasks {
namespace {

struct OrpoSpec {
  double beta = 0.1;

  static void describe(config::Description<OrpoSpec>& d) {
    d.summary("fine-tuning on the better of two answers, and which of them is better, at once");
    d.key("beta", &OrpoSpec::beta, "weight of the odds ratio beside the language model's loss; the paper's lambda")
        .above(0)
        .aliases({"lambda"});
  }
};

/// log(p / (1 - p)) of a log-probability below 0.
at::Tensor log_odds(const at::Tensor& log_prob) {
  constexpr double kNearestToOne = -1e-7;  // else a sure answer would have infinite odds
  const at::Tensor below_one = at::clamp_max(log_prob, kNearestToOne);
  return below_one - at::log(at::expm1(below_one).neg());
}

/// The next token at each place of a text, also in its prompt; kIgnoreIndex behind its last one.
at::Tensor next_tokens(const BatchField& text) {
  const at::Tensor next = at::constant_pad_nd(text.values.narrow(1, 1, text.values.size(1) - 1), {0, 1}, 0);
  const at::Tensor places = at::arange(text.values.size(1), text.values.options());
  const at::Tensor has_next = at::lt(places.unsqueeze(0), (text.counts - 1).unsqueeze(1));
  return next.masked_fill(has_next.logical_not(), kIgnoreIndex);
}

class Orpo final : public PairedAnswers {
 public:
  Orpo(const OrpoSpec& spec, const TaskRequest&) : PairedAnswers(0), spec_(spec) {}

 protected:
  /// The language model's part is the mean over all tokens of the prompt and the better answer.
  JudgedPairs judge(models::Model& model, const Batch& batch, double) const override {
    const BatchField &chosen = *batch.find(kTokens), &rejected = *batch.find(kRejectedTokens);
    const at::Tensor whole = next_tokens(chosen);
    const at::Tensor answers = joined_rows({batch.tensor(kTarget), batch.tensor(kRejectedTarget)}, kIgnoreIndex);
    const at::Tensor log_probs = token_log_probs(model, batch, joined_rows({chosen.values, rejected.values}, 0),
                                                 at::cat({chosen.counts, rejected.counts}),
                                                 joined_rows({whole, batch.tensor(kRejectedTarget)}, kIgnoreIndex));
    const int64_t rows = whole.size(0);
    const auto mean_where = [](const at::Tensor& values, const at::Tensor& counts) {
      return (values * counts).sum(1) / at::clamp_min(counts.sum(1), 1);
    };
    const at::Tensor means = mean_where(log_probs, answers.ne(kIgnoreIndex));
    const at::Tensor of_chosen = means.narrow(0, 0, batch.samples), of_rejected = means.narrow(0, rows, batch.samples);
    const at::Tensor likelihood =
        mean_where(log_probs.narrow(0, 0, rows).narrow(1, 0, whole.size(1)), whole.ne(kIgnoreIndex))
            .narrow(0, 0, batch.samples);
    const at::Tensor ratios = at::log_sigmoid(log_odds(of_chosen) - log_odds(of_rejected));
    const at::Tensor is_read = answers.narrow(0, 0, batch.samples).ne(kIgnoreIndex).any(1);
    return {(likelihood + ratios * spec_.beta).neg() * is_read, of_chosen * spec_.beta, of_rejected * spec_.beta};
  }

 private:
  OrpoSpec spec_;
};

const config::Registered<Orpo, OrpoSpec> registered_orpo{
    catalog(), "orpo", "the better of two answers, and which it is (ORPO), without a model to compare with"};

}  // namespace
}  // namespace gputrain::tasks

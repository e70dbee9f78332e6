// Odds ratio preference optimization (Hong et al., arXiv:2403.07691).
#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log_sigmoid.h>

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

/// Returns log(p / (1 - p)) of a log-probability below 0.
at::Tensor log_odds(const at::Tensor& log_prob) {
  constexpr double kNearestToOne = -1e-7;  // limit, or a sure answer would have infinite odds
  const at::Tensor below_one = at::clamp_max(log_prob, kNearestToOne);
  return below_one - at::log(at::expm1(below_one).neg());
}

class Orpo final : public PairedAnswers {
 public:
  Orpo(const OrpoSpec& spec, const TaskRequest&) : PairedAnswers(0), spec_(spec) {}

 protected:
  /// Judges pairs. The language model's part is the mean over all tokens of the prompt and the better answer.
  JudgedPairs judge(models::Model& model, const Batch& batch, double) const override {
    const AnswerRows rows(batch, {kChosenAnswer, kRejectedAnswer});
    const at::Tensor whole = rows.targets_of_whole_first(), log_probs = rows.log_probs(model, whole);
    const auto sums_where = [&](const at::Tensor& targets) {
      const at::Tensor is_counted = targets.ne(kIgnoreIndex).to(log_probs.scalar_type());
      std::vector<AnswerLogProbs> found;
      const auto sums = rows.sums(log_probs * is_counted), counts = rows.sums(is_counted);
      for (size_t i = 0; i < sums.size(); ++i) found.push_back({sums[i], counts[i]});
      return found;
    };
    const auto answers = sums_where(rows.targets());
    const at::Tensor likelihood = sums_where(whole)[0].means();
    const at::Tensor chosen = answers[0].means(), rejected = answers[1].means();
    const at::Tensor ratios = at::log_sigmoid(log_odds(chosen) - log_odds(rejected));
    return {(likelihood + ratios * spec_.beta).neg() * answers[0].counts.gt(0), chosen * spec_.beta,
            rejected * spec_.beta};
  }

 private:
  OrpoSpec spec_;
};

const config::Registered<Orpo, OrpoSpec> registered_orpo{
    catalog(), "orpo", "the better of two answers, and which it is (ORPO), without a model to compare with"};

}  // namespace
}  // namespace gputrain::tasks

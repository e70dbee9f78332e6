// Direct preference optimization (Rafailov et al., arXiv:2305.18290).
#include <ATen/TensorOperators.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>

#include "answers.hpp"
#include "paired_answers.hpp"

namespace gputrain::tasks {
namespace {

struct DpoSpec {
  double beta = 0.1;
  std::string loss = "sigmoid";

  static void describe(config::Description<DpoSpec>& d) {
    d.summary("which of two answers is better, without moving far from the model as it is before training");
    d.key("beta", &DpoSpec::beta, "how much moving away from that model counts against it: more keeps it nearer")
        .above(0);
    d.key("loss", &DpoSpec::loss,
          "sigmoid: the paper's, with train.label_smoothing as the share of pairs that are the wrong way round; hinge "
          "(arXiv:2305.10425); ipo: squared, of means over tokens (arXiv:2310.12036)")
        .choices({"sigmoid", "hinge", "ipo"})
        .aliases({"loss_type", "pref_loss"});
  }
};

class Dpo final : public PairedAnswers {
 public:
  Dpo(const DpoSpec& spec, const TaskRequest& request) : PairedAnswers(request.label_smoothing), spec_(spec) {}

  int64_t reference_numbers() const override { return 2; }

  at::Tensor reference(models::Model& model, const Batch& batch) const override {
    const auto answers = answer_log_probs(model, batch, {kChosenAnswer, kRejectedAnswer});
    return at::stack({answers[0].sums, answers[1].sums}, 1);
  }

 protected:
  JudgedPairs judge(models::Model& model, const Batch& batch, double smoothing) const override {
    const auto answers = answer_log_probs(model, batch, {kChosenAnswer, kRejectedAnswer});
    const auto before = numbers_before(batch, 2, answers[0].sums);
    const at::Tensor chosen = answers[0].sums - before[0], rejected = answers[1].sums - before[1];
    const at::Tensor is_read = answers[0].counts.gt(0);
    at::Tensor losses;
    if (spec_.loss == "ipo") {
      const at::Tensor margins =
          AnswerLogProbs{chosen, answers[0].counts}.means() - AnswerLogProbs{rejected, answers[1].counts}.means();
      losses = (margins - 1 / (2 * spec_.beta)).square();
    } else {
      const at::Tensor margins = (chosen - rejected) * spec_.beta;
      losses = spec_.loss == "hinge" ? at::relu(1 - margins) : logistic_losses(margins, smoothing);
    }
    return {losses * is_read, chosen * spec_.beta, rejected * spec_.beta};
  }

 private:
  DpoSpec spec_;
};

const config::Registered<Dpo, DpoSpec> registered_dpo{
    catalog(), "dpo", "which of two answers is better (DPO); loss, accuracy, margin and rewards"};

}  // namespace
}  // namespace gputrain::tasks

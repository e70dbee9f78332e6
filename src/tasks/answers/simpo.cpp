// Simple preference optimization (Meng et al., arXiv:2405.14734).
#include <ATen/TensorOperators.h>

#include "answers.hpp"
#include "paired_answers.hpp"

namespace gputrain::tasks {
namespace {

struct SimpoSpec {
  double beta = 2, gamma = 1;

  static void describe(config::Description<SimpoSpec>& d) {
    d.summary("which of two answers is better, by the mean log-probability of their tokens");
    d.key("beta", &SimpoSpec::beta, "that mean times beta is an answer's reward").above(0);
    d.key("gamma", &SimpoSpec::gamma, "how much more reward the better answer shall have")
        .at_least(0)
        .aliases({"simpo_gamma"});
  }
};

class Simpo final : public PairedAnswers {
 public:
  Simpo(const SimpoSpec& spec, const TaskRequest& request) : PairedAnswers(request.label_smoothing), spec_(spec) {}

 protected:
  JudgedPairs judge(models::Model& model, const Batch& batch, double smoothing) const override {
    const auto answers = answer_log_probs(model, batch, {kChosenAnswer, kRejectedAnswer});
    const at::Tensor chosen = answers[0].means() * spec_.beta, rejected = answers[1].means() * spec_.beta;
    return {logistic_losses(chosen - rejected - spec_.gamma, smoothing) * answers[0].counts.gt(0), chosen, rejected};
  }

 private:
  SimpoSpec spec_;
};

const config::Registered<Simpo, SimpoSpec> registered_simpo{
    catalog(), "simpo", "which of two answers is better (SimPO), without a model to compare with"};

}  // namespace
}  // namespace gputrain::tasks

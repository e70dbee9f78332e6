// Reward models: a number for an answer, higher for the better of two (Ouyang et al., arXiv:2203.02155, section 3.5).
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "answers.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/tasks/logits.hpp"
#include "paired_answers.hpp"

namespace gputrain::tasks {
namespace {

struct RewardSpec {
  double center = 0;

  static void describe(config::Description<RewardSpec>& d) {
    d.summary("a number for an answer to a prompt, higher for the better of two answers");
    d.key("center", &RewardSpec::center,
          "weight of the squared sum of both numbers, which keeps them around 0 (arXiv:2312.09244)")
        .at_least(0)
        .aliases({"center_rewards_coefficient"});
  }
};

class Reward final : public PairedAnswers {
 public:
  static Target head() { return Target::label; }
  static Abilities abilities() { return {.reads_rows_alone = true}; }

  Reward(const RewardSpec& spec, const TaskRequest& request) : PairedAnswers(0), spec_(spec) {
    GPUTRAIN_ASSERT(request.layout.find(kRejectedTokens) != nullptr, "a reward model reads packed answers");
  }

 protected:
  JudgedPairs judge(models::Model& model, const Batch& batch, double) const override {
    const BatchField &chosen = *batch.find(kTokens), &rejected = *batch.find(kRejectedTokens);
    Batch both;
    both.fields.push_back(
        {kTokens, joined_rows({chosen.values, rejected.values}, 0), at::cat({chosen.counts, rejected.counts})});
    both.samples = 2 * batch.samples;
    const at::Tensor rewards = wide_logits(model, both);
    if (rewards.dim() != 2 || rewards.size(1) != 1)
      throw Error(ExitCode::usage, {.what = "a reward model gives one number for an answer, and this one gives more",
                                    .where = "model.config.head",
                                    .hint = "head: classifier, with num_classes: 1 for bert"});
    const at::Tensor one = rewards.squeeze(1), good = one.narrow(0, 0, batch.samples),
                     bad = one.narrow(0, chosen.values.size(0), batch.samples);
    at::Tensor losses = logistic_losses(good - bad, 0);
    if (spec_.center > 0) losses = losses + (good + bad).square() * spec_.center;
    const at::Tensor is_read = chosen.counts.narrow(0, 0, batch.samples).gt(0);
    return {losses * is_read, good * is_read, bad * is_read};
  }

 private:
  RewardSpec spec_;
};

const config::Registered<Reward, RewardSpec> registered_reward{
    catalog(), "reward", "a number that is higher for the better of two answers; loss, accuracy and margin"};

}  // namespace
}  // namespace gputrain::tasks

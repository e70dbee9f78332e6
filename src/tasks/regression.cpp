// One number for each text, or pair of texts.
#include <algorithm>

#include <ATen/ops/isnan.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include "logits.hpp"
#include "scores.hpp"

namespace gputrain::tasks {
namespace {

struct RegressionSpec {
  static void describe(config::Description<RegressionSpec>& d) { d.summary("one number for each text"); }
};

/// The squared error of each row; 0 where the target does not count.
at::Tensor squared_errors(const at::Tensor& guesses, const at::Tensor& targets) {
  const at::Tensor truth = at::where(at::isnan(targets), guesses.detach(), targets);
  return at::sub(guesses, truth).square();
}

class Regression final : public Task {
 public:
  Regression(const RegressionSpec&, const TaskRequest&) {}

  static TextUse use() { return TextUse::number; }

  static bool fits(const TaskRequest& request) {
    const data::Field* target = request.layout.target();
    if (request.layout.find(kPairTokens) != nullptr) return false;
    return target != nullptr && target->type == at::kFloat && target->sizes.empty();
  }

  static std::vector<Metric> measures() {
    return {{.name = "loss",
             .smaller_is_better = true,
             .use = Metric::Use::result,
             .finish = [](const Totals& t) { return t.sums.at("loss") / std::max(1.0, t.weight); }},
            {.name = "pearson", .finish = [](const Totals& t) { return pearson(t.rows.at("numbers")); }},
            {.name = "spearman", .use = Metric::Use::best, .finish = [](const Totals& t) {
               return spearman(t.rows.at("numbers"));
             }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return loss_of_sum(squared_errors(wide_logits(model, batch).select(-1, 0), batch.tensor(kTarget)), weight);
  }

  Tally::Parts parts() const override { return {.sums = {"loss"}, .rows = {{.name = "numbers", .columns = 2}}}; }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    const at::Tensor guesses = wide_logits(model, batch).select(-1, 0), &targets = batch.tensor(kTarget);
    tally.add("loss", squared_errors(guesses, targets).sum());
    tally.append("numbers", at::stack({guesses.to(at::kDouble), targets.to(at::kDouble)}, 1));
  }
};

const config::Registered<Regression, RegressionSpec> registered_regression{
    catalog(), "regression", "one number for each text; squared error, pearson and spearman"};

}  // namespace
}  // namespace gputrain::tasks

// Tokens: the next one at each position, or those that a mask hides.
#include <algorithm>
#include <cmath>

#include "gputrain/tasks/cross_entropy.hpp"

namespace gputrain::tasks {
namespace {

double mean_loss(const Totals& totals) { return totals.sums.at("loss") / std::max(1.0, totals.weight); }

struct LanguageModelSpec {
  static void describe(config::Description<LanguageModelSpec>& d) { d.summary("a token for each token"); }
};

template <TextUse of>
class LanguageModel final : public Task {
 public:
  LanguageModel(const LanguageModelSpec&, const TaskRequest& request) : label_smoothing_(request.label_smoothing) {}

  static TextUse use() { return of; }

  static bool fits(const TaskRequest& request) {
    const data::Field *target = request.layout.target(), *tokens = request.layout.find(kTokens);
    if (request.model.use != of) return false;
    return target != nullptr && tokens != nullptr && target->type == at::kLong && target->sizes == tokens->sizes;
  }

  static std::vector<Metric> measures() {
    return {{.name = "loss", .smaller_is_better = true, .use = Metric::Use::best, .finish = mean_loss},
            {.name = "perplexity", .smaller_is_better = true, .label = "ppl", .finish = [](const Totals& totals) {
               return std::exp(mean_loss(totals));
             }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return cross_entropy_loss(model, batch, label_smoothing_, weight);
  }

  Tally::Parts parts() const override { return {.sums = {"loss"}}; }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    tally.add("loss", evaluate_cross_entropy(model, batch, {}));
  }

 private:
  double label_smoothing_;
};

const config::Registered<LanguageModel<TextUse::next_token>, LanguageModelSpec> registered_language_model{
    catalog(), "language_model", "the next token at each position; loss and perplexity"};
const config::Registered<LanguageModel<TextUse::masked>, LanguageModelSpec> registered_masked_language_model{
    catalog(), "masked_language_model", "the tokens that a mask hides; loss and perplexity"};

}  // namespace
}  // namespace gputrain::tasks

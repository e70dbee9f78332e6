// Learning of tokens: the next one at each position, or those that a mask hides.
#include <algorithm>
#include <cmath>

#include <ATen/ops/arange.h>

#include "gputrain/ops/context_attention.hpp"
#include "gputrain/tasks/cross_entropy.hpp"

namespace gputrain::tasks {
namespace {

double mean_loss(const Totals& totals) { return totals.sums.at("loss") / std::max(1.0, totals.weight); }

/// Returns this rank's positions of the texts of a batch.
Batch part_of_texts(const Batch& batch, const comm::Group& group) {
  Batch part = batch;
  part.is_part_of_texts = true;
  part.has_one_text_a_row = batch.find(kPositions) == nullptr;
  part.weight = 0;  // unknown for the part
  const at::Tensor& tokens = batch.tensor(kTokens);
  const BatchField* positions = batch.find(kPositions);
  const at::Tensor whole = positions != nullptr
                               ? positions->values
                               : at::arange(tokens.size(1), tokens.options().dtype(at::kLong)).unsqueeze(0);
  part.fields = {{kTokens, ops::text_part(tokens, group, 0)},
                 {kTarget, ops::text_part(batch.tensor(kTarget), group, kIgnoreIndex)},
                 {kPositions, ops::text_part(whole, group, 0)}};
  return part;
}

struct LanguageModelSpec {
  static void describe(config::Description<LanguageModelSpec>& d) { d.summary("a token for each token"); }
};

template <const Target& of>
class LanguageModel final : public Task {
 public:
  LanguageModel(const LanguageModelSpec&, const TaskRequest& request) : label_smoothing_(request.label_smoothing) {}

  static Target target() { return of; }
  static Abilities abilities() {
    return {.takes_parts_of_texts = of == Target::next_token, .takes_last_layer_alone = true};
  }

  static bool fits(const TaskRequest& request) {
    const data::Field *target = request.layout.target(), *tokens = request.layout.find(kTokens);
    if (request.model.target != of) return false;
    return target != nullptr && tokens != nullptr && target->type == at::kLong && target->sizes == tokens->sizes;
  }

  static std::vector<Metric> measures() {
    return {{.name = "loss", .smaller_is_better = true, .use = Metric::Use::best, .finish = mean_loss},
            {.name = "perplexity", .smaller_is_better = true, .label = "ppl", .finish = [](const Totals& totals) {
               return std::exp(mean_loss(totals));
             }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return cross_entropy_loss(model, part_of(batch), label_smoothing_, weight);
  }

  Batch part_of(const Batch& batch) const override {
    const bool is_whole = groups() == nullptr || groups()->context().size() == 1 || batch.is_part_of_texts;
    return is_whole ? batch : part_of_texts(batch, groups()->context());
  }

  Tally::Parts parts() const override { return {.sums = {"loss"}}; }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    tally.add("loss", evaluate_cross_entropy(model, part_of(batch), {}));
  }

 private:
  double label_smoothing_;
};

const config::Registered<LanguageModel<Target::next_token>, LanguageModelSpec> registered_language_model{
    catalog(), "language_model", "the next token at each position; loss and perplexity"};
const config::Registered<LanguageModel<Target::masked>, LanguageModelSpec> registered_masked_language_model{
    catalog(), "masked_language_model", "the tokens that a mask hides; loss and perplexity"};

}  // namespace
}  // namespace gputrain::tasks

// One class for each text, or pair of texts.
#include <algorithm>

#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/stack.h>

#include "gputrain/tasks/cross_entropy.hpp"
#include "scores.hpp"

namespace gputrain::tasks {
namespace {

struct TextClassificationSpec {
  static void describe(config::Description<TextClassificationSpec>& d) { d.summary("one class for each text"); }
};

class TextClassification final : public Task {
 public:
  TextClassification(const TextClassificationSpec&, const TaskRequest& request)
      : label_smoothing_(request.label_smoothing) {}

  static TextUse use() { return TextUse::label; }

  static bool fits(const TaskRequest& request) {
    const data::Field* target = request.layout.target();
    const bool is_class = target != nullptr && target->type == at::kLong && target->sizes.empty();
    return is_class && request.layout.token_count() > 0;
  }

  static std::vector<Metric> measures() {
    const auto confusion = [](const Totals& totals) { return Confusion(totals.rows.at("classes")); };
    return {{.name = "loss",
             .smaller_is_better = true,
             .use = Metric::Use::result,
             .finish = [](const Totals& t) { return t.sums.at("loss") / std::max(1.0, t.weight); }},
            {.name = "accuracy",
             .unit = "%",
             .use = Metric::Use::best,
             .finish = [](const Totals& t) { return 100 * t.sums.at("right") / std::max(1.0, t.weight); }},
            {.name = "f1", .finish = [=](const Totals& t) { return confusion(t).f1(); }},
            {.name = "f1_macro", .finish = [=](const Totals& t) { return confusion(t).f1_macro(); }},
            {.name = "mcc", .finish = [=](const Totals& t) { return confusion(t).mcc(); }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return cross_entropy_loss(model, batch, label_smoothing_, weight);
  }

  Tally::Parts parts() const override {
    return {.sums = {"loss", "right"}, .rows = {{.name = "classes", .columns = 2}}};
  }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    tally.add("loss", evaluate_cross_entropy(model, batch, [&](const at::Tensor& logits, const at::Tensor& targets) {
                const at::Tensor guesses = at::argmax(logits, -1);
                tally.add("right", at::eq(guesses, targets).sum());
                tally.append("classes", at::stack({guesses, targets}, 1));
              }));
  }

 private:
  double label_smoothing_;
};

const config::Registered<TextClassification, TextClassificationSpec> registered_text_classification{
    catalog(), "text_classification", "one class for each text; loss, accuracy, f1, f1_macro and mcc"};

}  // namespace
}  // namespace gputrain::tasks

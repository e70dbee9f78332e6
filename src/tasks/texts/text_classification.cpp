// One class for each text, or pair of texts.
#include <algorithm>

#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/stack.h>

#include "../class_loss.hpp"
#include "../class_metrics.hpp"
#include "../scores.hpp"

namespace gputrain::tasks {
namespace {

struct TextClassificationSpec {
  ClassWeights class_weights;
  config::Auto<bool> auc;

  static void describe(config::Description<TextClassificationSpec>& d) {
    d.summary("one class for each text");
    ClassLossSpec::describe_weights(d);
    d.key("auc", &TextClassificationSpec::auc, kAucHelp);
  }
};

class TextClassification final : public Task {
 public:
  TextClassification(const TextClassificationSpec& spec, const TaskRequest& request)
      : loss_(ClassLossSpec{.class_weights = spec.class_weights}, request), scores_("classes", spec.auc, request) {}

  static Target target() { return Target::label; }

  static bool fits(const TaskRequest& request) {
    const data::Field* target = request.layout.target();
    const bool is_class = target != nullptr && target->type == at::kLong && target->sizes.empty();
    return is_class && request.layout.token_count() > 0;
  }

  static std::vector<Metric> measures() {
    const auto confusion = [](const Totals& totals) { return Confusion(totals.rows.at("classes")); };
    std::vector<Metric> metrics{
        {.name = "loss", .smaller_is_better = true, .use = Metric::Use::result, .finish = mean_loss},
        {.name = "accuracy", .unit = "%", .use = Metric::Use::best, .finish = [](const Totals& t) {
           return 100 * t.sums.at("right") / std::max(1.0, t.weight);
         }}};
    for (Metric& more : ClassMetrics::of_rows("classes")) metrics.push_back(std::move(more));
    metrics.push_back({.name = "f1_macro", .finish = [=](const Totals& t) { return confusion(t).f1_macro(); }});
    metrics.push_back({.name = "mcc", .finish = [=](const Totals& t) { return confusion(t).mcc(); }});
    return metrics;
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return loss_(model, batch, weight);
  }

  std::vector<double> class_weights() const override { return loss_.class_weights(); }

  Tally::Parts parts() const override {
    Tally::Parts parts{.sums = {"loss", "right"}, .rows = {{.name = "classes", .columns = 2}}};
    if (!class_weights().empty()) parts.sums.emplace_back("loss_weight");
    scores_.add_to(parts);
    return parts;
  }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    tally.add("loss", loss_.evaluate(model, batch, [&](const at::Tensor& logits, const at::Tensor& targets) {
      const at::Tensor guesses = at::argmax(logits, -1);
      tally.add("right", at::eq(guesses, targets).sum());
      tally.append("classes", at::stack({guesses, targets}, 1));
      if (scores_.measures_auc()) scores_.append(outputs(logits.to(at::kDouble)), targets, tally);
      if (!class_weights().empty()) tally.add("loss_weight", loss_.weight_of(targets));
    }));
  }

 private:
  std::vector<Metric> chosen(std::vector<Metric> all) const override { return scores_.chosen(std::move(all)); }

  ClassLoss loss_;
  ClassMetrics scores_;
};

const config::Registered<TextClassification, TextClassificationSpec> registered_text_classification{
    catalog(), "text_classification",
    "one class for each text; loss, accuracy, f1, precision, recall, auc, f1_macro and mcc"};

}  // namespace
}  // namespace gputrain::tasks

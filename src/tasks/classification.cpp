// One class for each sample.
#include <algorithm>
#include <cstdint>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>

#include "class_loss.hpp"
#include "class_metrics.hpp"

namespace gputrain::tasks {
namespace {

double percent_of(const Totals& totals, const char* name) {
  return 100 * totals.sums.at(name) / std::max(1.0, totals.weight);
}

struct ClassificationSpec : ClassLossSpec {
  config::Auto<bool> auc;

  static void describe(config::Description<ClassificationSpec>& d) {
    d.summary("one class for each sample");
    describe_loss(d);
    describe_weights(d);
    d.key("auc", &ClassificationSpec::auc, kAucHelp);
  }
};

class Classification final : public Task {
 public:
  Classification(const ClassificationSpec& spec, const TaskRequest& request)
      : loss_(spec, request), scores_("samples", spec.auc, request) {}

  static bool fits(const TaskRequest& request) {
    const data::Field* target = request.layout.target();
    const bool is_class = target != nullptr && target->type == at::kLong && target->sizes.empty();
    return is_class && request.layout.token_count() == 0 && request.model.target != Target::pixels;
  }

  static std::vector<Metric> measures() {
    std::vector<Metric> metrics{
        {.name = "loss", .smaller_is_better = true, .use = Metric::Use::result, .finish = mean_loss},
        {.name = "top1",
         .unit = "%",
         .use = Metric::Use::best,
         .finish = [](const Totals& t) { return percent_of(t, "top1"); }},
        {.name = "top5", .unit = "%", .finish = [](const Totals& t) { return percent_of(t, "top5"); }}};
    for (Metric& more : ClassMetrics::of_rows("samples")) metrics.push_back(std::move(more));
    return metrics;
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return loss_(model, batch, weight);
  }

  std::vector<double> class_weights() const override { return loss_.class_weights(); }
  at::Tensor outputs(const at::Tensor& logits) const override { return loss_.probabilities(logits); }

  Tally::Parts parts() const override {
    Tally::Parts parts{.sums = {"loss", "top1", "top5"}, .rows = {{.name = "samples", .columns = 4}}};
    if (!class_weights().empty()) parts.sums.emplace_back("loss_weight");
    scores_.add_to(parts);
    return parts;
  }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    // If some rows do not count, others may be left out.
    const bool has_all_rows = batch.weight == batch.samples;
    int64_t position = has_all_rows ? batch.first_position : kUnknownPosition;
    tally.add("loss", loss_.evaluate(model, batch, [&](const at::Tensor& logits, const at::Tensor& targets) {
      tally.append("samples", results_of(logits, targets, position));
      if (has_all_rows) position += targets.size(0);
      if (scores_.measures_auc()) scores_.append(outputs(logits.to(at::kDouble)), targets, tally);
      if (!class_weights().empty()) tally.add("loss_weight", loss_.weight_of(targets));
      const int64_t count = std::min<int64_t>(5, logits.size(-1));
      // An ignored target equals no class number, so it is never a hit.
      const at::Tensor hits = at::eq(std::get<1>(logits.topk(count, -1)), targets.unsqueeze(-1));
      tally.add("top1", hits.select(-1, 0).sum());
      tally.add("top5", hits.sum());
    }));
  }

  std::vector<SampleResult> sample_results(const Totals& totals) const override {
    std::vector<SampleResult> all;
    const at::Tensor rows = totals.rows.at("samples");
    const auto row = rows.accessor<double, 2>();
    for (int64_t i = 0; i < rows.size(0); ++i) {
      const auto target = static_cast<int64_t>(row[i][1]);
      const bool is_known = row[i][3] > kUnknownPosition;
      if (is_known && target != kIgnoreIndex)  // leaves out padding
        all.push_back({.position = static_cast<int64_t>(row[i][3]),
                       .guess = static_cast<int64_t>(row[i][0]),
                       .target = target,
                       .loss = row[i][2]});
    }
    return all;
  }

 private:
  static constexpr int64_t kUnknownPosition = -1;

  std::vector<Metric> chosen(std::vector<Metric> all) const override { return scores_.chosen(std::move(all)); }

  /// Returns a row for each sample: the guessed and the true class, the loss, the position.
  at::Tensor results_of(const at::Tensor& logits, const at::Tensor& targets, int64_t position) const {
    const auto options = logits.options().dtype(at::kDouble);
    const at::Tensor positions = position == kUnknownPosition
                                     ? at::full({targets.size(0)}, kUnknownPosition, options)
                                     : at::arange(position, position + targets.size(0), options);
    return at::stack({at::argmax(logits, -1).to(at::kDouble), targets.to(at::kDouble),
                      loss_.each(logits, targets).to(at::kDouble), positions},
                     1);
  }

  ClassLoss loss_;
  ClassMetrics scores_;
};

const config::Registered<Classification, ClassificationSpec> registered_classification{
    catalog(), "classification", "one class for each sample; loss, top1, top5, f1, precision, recall and auc"};

}  // namespace
}  // namespace gputrain::tasks

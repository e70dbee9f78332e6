// One class for each sample.
#include <algorithm>
#include <cstdint>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include "gputrain/data/mixing.hpp"
#include "gputrain/tasks/cross_entropy.hpp"

namespace gputrain::tasks {
namespace {

double percent_of(const Totals& totals, const char* name) {
  return 100 * totals.sums.at(name) / std::max(1.0, totals.weight);
}

struct ClassificationSpec {
  static void describe(config::Description<ClassificationSpec>& d) { d.summary("one class for each sample"); }
};

class Classification final : public Task {
 public:
  Classification(const ClassificationSpec&, const TaskRequest& request) : label_smoothing_(request.label_smoothing) {}

  static bool fits(const TaskRequest& request) {
    const data::Field* target = request.layout.target();
    const bool is_class = target != nullptr && target->type == at::kLong && target->sizes.empty();
    return is_class && request.layout.token_count() == 0;
  }

  static std::vector<Metric> measures() {
    return {{.name = "loss",
             .smaller_is_better = true,
             .use = Metric::Use::result,
             .finish = [](const Totals& t) { return t.sums.at("loss") / std::max(1.0, t.weight); }},
            {.name = "top1",
             .unit = "%",
             .use = Metric::Use::best,
             .finish = [](const Totals& t) { return percent_of(t, "top1"); }},
            {.name = "top5", .unit = "%", .finish = [](const Totals& t) { return percent_of(t, "top5"); }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    const bool is_mixed = batch.find(data::kMixedPart) != nullptr;
    return (is_mixed ? mixed_cross_entropy_loss : cross_entropy_loss)(model, batch, label_smoothing_, weight);
  }

  Tally::Parts parts() const override {
    return {.sums = {"loss", "top1", "top5"}, .rows = {{.name = "samples", .columns = 4}}};
  }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    int64_t position = batch.first_position;
    const bool has_all_rows = batch.weight == batch.samples;
    tally.add("loss", evaluate_cross_entropy(model, batch, [&](const at::Tensor& logits, const at::Tensor& targets) {
                if (has_all_rows)
                  tally.append("samples",
                               results_of(logits, targets, std::exchange(position, position + targets.size(0))));
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
      if (target != kIgnoreIndex)  // padding
        all.push_back({.position = static_cast<int64_t>(row[i][3]),
                       .guess = static_cast<int64_t>(row[i][0]),
                       .target = target,
                       .loss = row[i][2]});
    }
    return all;
  }

 private:
  /// A row for each sample: the guessed and the true class, the loss, the position.
  static at::Tensor results_of(const at::Tensor& logits, const at::Tensor& targets, int64_t position) {
    const auto options = logits.options().dtype(at::kDouble);
    const at::Tensor known = targets.clamp_min(0);
    const at::Tensor loss =
        at::log_softmax(logits.to(at::kFloat), -1).gather(-1, known.unsqueeze(-1)).squeeze(-1).neg();
    return at::stack({at::argmax(logits, -1).to(at::kDouble), targets.to(at::kDouble), loss.to(at::kDouble),
                      at::arange(position, position + targets.size(0), options)},
                     1);
  }

  double label_smoothing_;
};

const config::Registered<Classification, ClassificationSpec> registered_classification{
    catalog(), "classification", "one class for each sample; loss, top1 and top5"};

}  // namespace
}  // namespace gputrain::tasks

// One class for each sample.
#include <algorithm>
#include <cstdint>

#include <ATen/ops/eq.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

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
    return cross_entropy_loss(model, batch, label_smoothing_, weight);
  }

  Tally::Parts parts() const override { return {.sums = {"loss", "top1", "top5"}}; }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    tally.add("loss", evaluate_cross_entropy(model, batch, [&](const at::Tensor& logits, const at::Tensor& targets) {
                const int64_t count = std::min<int64_t>(5, logits.size(-1));
                // An ignored target equals no class number, so it is never a hit.
                const at::Tensor hits = at::eq(std::get<1>(logits.topk(count, -1)), targets.unsqueeze(-1));
                tally.add("top1", hits.select(-1, 0).sum());
                tally.add("top5", hits.sum());
              }));
  }

 private:
  double label_smoothing_;
};

const config::Registered<Classification, ClassificationSpec> registered_classification{
    catalog(), "classification", "one class for each sample; loss, top1 and top5"};

}  // namespace
}  // namespace gputrain::tasks

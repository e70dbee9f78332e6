// Any number of classes for each text, pair of texts, or image.
#include <algorithm>

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/sigmoid.h>

#include "gputrain/tasks/logits.hpp"
#include "scores.hpp"

namespace gputrain::tasks {
namespace {

struct MultiLabelSpec {
  static void describe(config::Description<MultiLabelSpec>& d) { d.summary("a set of classes for each text or image"); }
};

/// Returns the mean over the classes, for each row; 0 where the target does not count.
at::Tensor cross_entropies(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor truth = at::nan_to_num(targets);
  const at::Tensor each = at::binary_cross_entropy_with_logits(logits, truth.to(logits.scalar_type()), {}, {}, 0);
  return at::mul(each, at::isnan(targets).logical_not()).mean(-1);
}

/// Counts hits in double [samples, 2 classes]: predicted classes, then true ones.
std::vector<Hits> hits_of(const at::Tensor& rows) {
  const int64_t classes = rows.size(1) / 2;
  const at::Tensor counts = at::isnan(rows).any(1).logical_not().unsqueeze(1);
  const at::Tensor used = at::mul(at::nan_to_num(rows), counts);
  const at::Tensor guesses = used.narrow(1, 0, classes), truth = used.narrow(1, classes, classes);
  const at::Tensor both = at::mul(guesses, truth).sum(0), predicted = guesses.sum(0), true_ones = truth.sum(0);
  std::vector<Hits> hits;
  for (int64_t i = 0; i < classes; ++i)
    hits.push_back({both[i].item<double>(), predicted[i].item<double>(), true_ones[i].item<double>()});
  return hits;
}

double micro(const std::vector<Hits>& hits) {
  Hits all;
  for (const Hits& one : hits) {
    all.both += one.both;
    all.predicted += one.predicted;
    all.true_ones += one.true_ones;
  }
  return all.f1();
}

double macro(const std::vector<Hits>& hits) {
  double sum = 0;
  for (const Hits& one : hits) sum += one.f1();
  return hits.empty() ? 0 : sum / static_cast<double>(hits.size());
}

class MultiLabelClassification final : public Task {
 public:
  MultiLabelClassification(const MultiLabelSpec&, const TaskRequest& request) : classes_(request.layout.outputs) {}

  static Target target() { return Target::labels; }
  static Target head() { return Target::label; }

  static bool fits(const TaskRequest& request) {
    const data::Field* target = request.layout.target();
    if (target == nullptr || target->type != at::kFloat || target->sizes.size() != 1) return false;
    return request.layout.token_count() > 0 || request.model.target == Target::labels;
  }

  static std::vector<Metric> measures() {
    return {{.name = "loss",
             .smaller_is_better = true,
             .use = Metric::Use::result,
             .finish = [](const Totals& t) { return t.sums.at("loss") / std::max(1.0, t.weight); }},
            {.name = "f1_micro",
             .use = Metric::Use::best,
             .finish = [](const Totals& t) { return micro(hits_of(t.rows.at("classes"))); }},
            {.name = "f1_macro", .finish = [](const Totals& t) { return macro(hits_of(t.rows.at("classes"))); }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return loss_of_sum(cross_entropies(logits_of(model, batch), batch.tensor(kTarget)), weight);
  }

  at::Tensor outputs(const at::Tensor& logits) const override { return at::sigmoid(logits.narrow(-1, 0, classes_)); }

  Tally::Parts parts() const override {
    return {.sums = {"loss"}, .rows = {{.name = "classes", .columns = 2 * classes_}}};
  }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    const at::Tensor logits = logits_of(model, batch), &targets = batch.tensor(kTarget);
    tally.add("loss", cross_entropies(logits, targets).sum());
    tally.append("classes", at::cat({at::gt(logits, 0).to(at::kDouble), targets.to(at::kDouble)}, 1));
  }

 private:
  /// Returns the logits of the data's classes: a model may have more.
  at::Tensor logits_of(models::Model& model, const Batch& batch) const {
    return wide_logits(model, batch).narrow(-1, 0, classes_);
  }

  int64_t classes_;
};

const config::Registered<MultiLabelClassification, MultiLabelSpec> registered_multi_label{
    catalog(), "multi_label_classification", "a set of classes for each text or image; loss, f1_micro and f1_macro"};

}  // namespace
}  // namespace gputrain::tasks

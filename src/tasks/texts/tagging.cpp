// A class for each word: names in a text, parts of speech.
#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "entities.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/tasks/cross_entropy.hpp"

namespace gputrain::tasks {
namespace {

struct TaggingSpec {
  static void describe(config::Description<TaggingSpec>& d) { d.summary("a class for each word"); }
};

class Tagging final : public Task {
 public:
  Tagging(const TaggingSpec&, const TaskRequest& request)
      : label_smoothing_(request.label_smoothing),
        codes_(tag_codes(request.class_names, request.layout.outputs)),
        has_entities_(!are_numbers(request.class_names)) {
    if (!has_entities_)
      log::warning(
          "the tags are numbers, which do not tell entities (B-X, I-X): entity_f1 is not measured, and the accuracy "
          "says "
          "which checkpoint is the best; write the names of the tags into the data to measure entities");
  }

  static Target target() { return Target::tags; }

  static bool fits(const TaskRequest& request) {
    if (request.model.target != Target::tags) return false;
    const data::Field *target = request.layout.target(), *tokens = request.layout.find(kTokens);
    return target != nullptr && tokens != nullptr && target->type == at::kLong && target->sizes == tokens->sizes;
  }

  static std::vector<Metric> measures() {
    return {{.name = "loss",
             .smaller_is_better = true,
             .use = Metric::Use::result,
             .finish = [](const Totals& t) { return t.sums.at("loss") / std::max(1.0, t.weight); }},
            {.name = "accuracy",
             .unit = "%",
             .finish = [](const Totals& t) { return 100 * t.sums.at("right") / std::max(1.0, t.weight); }},
            {.name = "entity_f1", .use = Metric::Use::best, .finish = [](const Totals& t) {
               return entity_hits(t.rows.at("tags")).f1();
             }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return cross_entropy_loss(model, batch, label_smoothing_, weight);
  }

  Tally::Parts parts() const override {
    return {.sums = {"loss", "right"}, .rows = {{.name = "tags", .columns = kTagColumns}}};
  }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    const at::NoGradGuard no_grad;
    const at::Tensor& targets = batch.tensor(kTarget);
    const auto last = model.last_layer(batch);
    const at::Tensor logits =
        (last.head.logits ? last.head.logits(last.features) : last.features).narrow(-1, 0, last.classes);
    const at::Tensor guesses = at::argmax(logits, -1);
    tally.add("right", at::eq(guesses, targets).sum());
    const at::Tensor counts = targets.ne(kIgnoreIndex), codes = codes_.to(targets.device());
    const at::Tensor nothing = at::full_like(targets, -1);
    const auto coded = [&](const at::Tensor& classes) {
      return at::where(counts, codes.index_select(0, at::where(counts, classes, 0).reshape({-1})).view(targets.sizes()),
                       nothing);
    };
    const at::Tensor place = at::arange(targets.size(1), targets.options()).expand_as(targets);
    tally.append("tags", at::stack({coded(guesses), coded(targets), place}, -1).view({-1, kTagColumns}));
    tally.add("loss", ops::cross_entropy(logits.contiguous(), targets, {.classes = last.classes}).sum);
  }

 protected:
  /// Leaves out entities that the tags do not tell.
  std::vector<Metric> chosen(std::vector<Metric> all) const override {
    if (has_entities_) return all;
    std::erase_if(all, [](const Metric& metric) { return metric.name == "entity_f1"; });
    for (Metric& metric : all)
      if (metric.name == "accuracy") metric.use = Metric::Use::best;
    return all;
  }

 private:
  double label_smoothing_;
  at::Tensor codes_;  // int64 [classes]
  bool has_entities_;
};

const config::Registered<Tagging, TaggingSpec> registered_tagging{
    catalog(), "tagging", "a class for each word; loss, accuracy and entity_f1"};

}  // namespace
}  // namespace gputrain::tasks

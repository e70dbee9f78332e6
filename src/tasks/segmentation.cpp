// One class for each pixel of an image.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include "gputrain/tasks/cross_entropy.hpp"
#include "gputrain/tasks/pixels.hpp"

namespace gputrain::tasks {
namespace {

// Names of sums of pixels of each class: predicted and true ones, predicted ones, true ones.
constexpr int64_t kMostPixels = 512 * 512;  // of a kept mask
constexpr const char *kBoth = "both", *kPredicted = "predicted", *kTrue = "true";

/// Returns the mean over the classes that occur, as predicted or true ones, of intersection over union (Everingham et
/// al., "The Pascal Visual Object Classes Challenge: A Retrospective", 2015).
double mean_iou(const Totals& totals) {
  const at::Tensor both = totals.vectors.at(kBoth);
  const at::Tensor either = at::sub(totals.vectors.at(kPredicted).add(totals.vectors.at(kTrue)), both);
  const at::Tensor occurring = either.gt(0);
  if (!occurring.any().item<bool>()) return 0;
  return at::div(both, either).masked_select(occurring).mean().item<double>();
}

struct SegmentationSpec {
  static void describe(config::Description<SegmentationSpec>& d) { d.summary("a class for each pixel of an image"); }
};

class Segmentation final : public Task {
 public:
  Segmentation(const SegmentationSpec&, const TaskRequest& request)
      : label_smoothing_(request.label_smoothing), classes_(request.layout.outputs) {}

  static bool fits(const TaskRequest& request) {
    const data::Field* target = request.layout.target();
    const bool is_mask = target != nullptr && target->type == at::kLong && target->sizes.size() == 2;
    return is_mask && request.layout.is_image() && request.model.target == Target::pixels;
  }

  static std::vector<Metric> measures() {
    return {{.name = "loss",
             .smaller_is_better = true,
             .use = Metric::Use::result,
             .finish = [](const Totals& t) { return t.sums.at("loss") / std::max(1.0, t.weight); }},
            {.name = "miou",
             .label = "mIoU",
             .unit = "%",
             .use = Metric::Use::best,
             .finish = [](const Totals& t) { return 100 * mean_iou(t); }},
            {.name = "pixel_accuracy", .unit = "%", .use = Metric::Use::result, .finish = [](const Totals& t) {
               return 100 * t.vectors.at(kBoth).sum().item<double>() / std::max(1.0, t.weight);
             }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return cross_entropy_loss(model, batch, label_smoothing_, weight);
  }

  Tally::Parts parts() const override {
    return {.sums = {"loss"},
            .rows = {{.name = kPredictedMasks, .columns = 0, .most = kKeptMasks}},
            .vectors = {{kBoth, classes_}, {kPredicted, classes_}, {kTrue, classes_}}};
  }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    // Pixels that do not count, and guesses that are no class of the data, are counted behind the classes.
    const auto count = [&](const char* name, const at::Tensor& numbers, const at::Tensor& counts) {
      const at::Tensor kept = at::where(counts, at::clamp_max(numbers, classes_), classes_);
      tally.add(name, at::bincount(kept, {}, classes_ + 1).narrow(0, 0, classes_));
    };
    std::vector<at::Tensor> masks;
    tally.add("loss", evaluate_cross_entropy(model, batch, [&](const at::Tensor& logits, const at::Tensor& targets) {
                const at::Tensor guesses = at::argmax(logits, -1), counts = targets.ne(kIgnoreIndex);
                masks.push_back(at::clamp_max(guesses, 255).to(at::kByte).reshape({-1}));
                count(kBoth, guesses, at::eq(guesses, targets));
                count(kPredicted, guesses, counts);
                count(kTrue, targets, counts);
              }));
    if (!masks.empty()) keep(at::cat(masks), batch, tally);
  }

 private:
  /// Keeps the masks of a batch's samples with most wrong pixels. `guesses`: of all its pixels, unless some that do not
  /// count were left out.
  static void keep(const at::Tensor& guesses, const Batch& batch, Tally& tally) {
    const at::Tensor& all = batch.tensor(kTarget);
    const int64_t pixels = all.numel() / all.size(0);
    if (guesses.numel() != all.numel() || pixels > kMostPixels || batch.samples < 1) return;
    const at::Tensor masks = guesses.view({-1, pixels}).narrow(0, 0, batch.samples);
    const at::Tensor targets = all.reshape({-1, pixels}).narrow(0, 0, batch.samples), counts = targets.ne(kIgnoreIndex);
    const at::Tensor wrong = at::logical_and(counts, targets.ne(masks)).sum(1).to(at::kDouble);
    const at::Tensor shares = at::div(wrong, counts.sum(1).clamp_min(1));
    const at::Tensor positions =
        at::arange(batch.first_position, batch.first_position + batch.samples, shares.options());
    const at::Tensor order = std::get<1>(at::sort(shares, std::optional<bool>(true), 0, /*descending=*/true))
                                 .narrow(0, 0, std::min(batch.samples, kKeptMasks));
    const at::Tensor places = at::stack({shares, positions}, 1);
    tally.append(kPredictedMasks,
                 at::cat({places.index_select(0, order), masks.index_select(0, order).to(at::kDouble)}, 1));
  }

  double label_smoothing_;
  int64_t classes_;
};

const config::Registered<Segmentation, SegmentationSpec> registered_segmentation{
    catalog(), "segmentation", "a class for each pixel of an image; loss, miou and pixel_accuracy"};

}  // namespace

std::vector<ClassIou> class_ious(const Totals& totals) {
  if (!totals.vectors.contains(kBoth)) return {};
  const at::Tensor both = totals.vectors.at(kBoth), predicted = totals.vectors.at(kPredicted),
                   truth = totals.vectors.at(kTrue);
  std::vector<ClassIou> all;
  for (int64_t i = 0; i < both.numel(); ++i) {
    const auto of = [i](const at::Tensor& pixels) { return pixels.const_data_ptr<double>()[i]; };
    const double either = of(predicted) + of(truth) - of(both);
    all.push_back({.iou = either > 0 ? std::optional(of(both) / either) : std::nullopt, .pixels = of(truth)});
  }
  return all;
}

}  // namespace gputrain::tasks

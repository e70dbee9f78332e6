// Loss and metrics of the task segmentation against sums by hand, however the images are spread over batches.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "gputrain/tasks/pixels.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {
namespace {

constexpr int64_t kImages = 5, kHeight = 3, kWidth = 4, kPixelClasses = 4;

/// The inputs are the logits.
class Identity final : public models::Model {
 public:
  Identity() : Model(nn::Context{.policy = {.master = at::kDouble, .compute = at::kDouble}}) {}
  at::Tensor forward(const at::Tensor& logits) override { return logits.clone(); }
  std::vector<models::Unit> units() override { return {{"all", {this}}}; }
};

/// Class 3 is neither predicted nor true; a third of the pixels does not count.
struct Example {
  at::Tensor logits = at::sin(at::arange(kImages * kHeight * kWidth * kPixelClasses, at::kDouble).mul(1.7))
                          .view({kImages, kHeight, kWidth, kPixelClasses});
  at::Tensor targets;

  Example() {
    logits.select(-1, 3).fill_(-5);
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kImages * kHeight * kWidth; ++i)
      labels.push_back(i % 3 == 1 ? kIgnoreIndex : i * i % 5 % 3);
    targets = at::tensor(labels).view({kImages, kHeight, kWidth});
  }

  Batch batch(int64_t first, int64_t count) const {
    const at::Tensor target = targets.narrow(0, first, count);
    return {.fields = {{kImage, logits.narrow(0, first, count)}, {kTarget, target}},
            .samples = count,
            .samples_on_all_ranks = count,
            .weight = target.ne(kIgnoreIndex).sum().item<int64_t>()};
  }
};

struct Scores {
  double loss = 0, miou = 0, accuracy = 0;
};

Scores by_hand(const Example& example) {
  const at::Tensor rows = example.logits.reshape({-1, kPixelClasses}), targets = example.targets.reshape({-1});
  double loss = 0, right = 0, all = 0;
  std::vector<double> both(kPixelClasses), either(kPixelClasses);
  for (int64_t i = 0; i < targets.numel(); ++i) {
    const int64_t target = targets[i].item<int64_t>();
    if (target == kIgnoreIndex) continue;
    double sum = 0;
    int64_t guess = 0;
    for (int64_t c = 0; c < kPixelClasses; ++c) {
      sum += std::exp(rows[i][c].item<double>());
      if (rows[i][c].item<double>() > rows[i][guess].item<double>()) guess = c;
    }
    loss += std::log(sum) - rows[i][target].item<double>();
    all += 1;
    right += guess == target ? 1 : 0;
    both[static_cast<size_t>(target)] += guess == target ? 1 : 0;
    either[static_cast<size_t>(target)] += 1;
    if (guess != target) either[static_cast<size_t>(guess)] += 1;
  }
  double miou = 0;
  for (size_t c = 0; c < 3; ++c) miou += both[c] / either[c] / 3;
  return {loss / all, 100 * miou, 100 * right / all};
}

std::unique_ptr<Task> task_of(int64_t classes = kPixelClasses) {
  return catalog().make({}, {.layout = data::SampleLayout::masked_images(kHeight, kWidth, 3, classes),
                             .model = {.field = kImage, .target = Target::pixels}});
}

Scores evaluated(const Example& example, const std::vector<int64_t>& batch_sizes, int64_t classes = kPixelClasses) {
  Identity model;
  const auto task = task_of(classes);
  Tally tally(task->parts(), at::kCPU);
  int64_t first = 0;
  for (const int64_t size : batch_sizes) {
    const Batch batch = example.batch(first, size);
    tally.add_weight(batch.weight);
    task->evaluate(model, batch, tally);
    first += size;
  }
  comm::ProcessGroups alone;
  const Totals totals = tally.merge(alone);
  const auto value = [&](const char* name) { return task->find(name)->finish(totals); };
  return {value("loss"), value("miou"), value("pixel_accuracy")};
}

TEST(Segmentation, SumsPixelsOverBatchesAsByHand) {
  const Example example;
  const Scores expected = by_hand(example);
  EXPECT_GT(expected.miou, 5);
  EXPECT_LT(expected.miou, 80);
  for (const std::vector<int64_t>& batches : {std::vector<int64_t>{5}, {2, 3}, {1, 1, 1, 1, 1}}) {
    const Scores found = evaluated(example, batches);
    EXPECT_NEAR(found.loss, expected.loss, 1e-12);
    EXPECT_NEAR(found.miou, expected.miou, 1e-9);
    EXPECT_NEAR(found.accuracy, expected.accuracy, 1e-9);
  }
}

TEST(Segmentation, KeepsTheMasksWithMostWrongPixels) {
  const Example example;
  Identity model;
  const auto task = task_of();
  Tally tally(task->parts(), at::kCPU);
  for (int64_t first = 0; first < 3 * kImages; first += kImages) {  // the same images three times
    Batch batch = example.batch(0, kImages);
    batch.first_position = first;
    task->evaluate(model, batch, tally);
  }
  const at::Tensor masks = example.logits.argmax(-1), counts = example.targets.ne(kIgnoreIndex);
  const at::Tensor wrong = masks.ne(example.targets).logical_and(counts).sum({1, 2});
  const at::Tensor shares = wrong.to(at::kDouble).div(counts.sum({1, 2}));
  std::vector<std::pair<double, int64_t>> expected;  // minus the share, and the position
  for (int64_t i = 0; i < 3 * kImages; ++i) expected.emplace_back(-shares[i % kImages].item<double>(), i);
  std::ranges::sort(expected);
  comm::ProcessGroups alone;
  const at::Tensor rows = tally.merge(alone).rows.at(kPredictedMasks);
  ASSERT_EQ(rows.size(0), kKeptMasks);
  for (int64_t i = 0; i < kKeptMasks; ++i) {
    const auto& [share, position] = expected[static_cast<size_t>(i)];
    EXPECT_DOUBLE_EQ(rows[i][0].item<double>(), -share);
    EXPECT_EQ(rows[i][1].item<double>(), static_cast<double>(position));
    EXPECT_TRUE(rows[i].narrow(0, 2, kHeight * kWidth).equal(masks[position % kImages].reshape({-1}).to(at::kDouble)));
  }
}

TEST(Segmentation, TakesAGuessBeyondTheClassesOfTheDataForWrong) {
  Example example;
  example.logits.narrow(0, 0, 1).select(-1, 3).fill_(9);
  const Scores as_class = evaluated(example, {5}), beyond = evaluated(example, {5}, /*classes=*/3);
  EXPECT_DOUBLE_EQ(as_class.accuracy, beyond.accuracy);
  EXPECT_NEAR(as_class.miou, 0.75 * beyond.miou, 1e-9) << "the fourth class occurs in guesses, and has no hit";
}

TEST(Segmentation, HasNoScoreWithoutPixels) {
  Example example;
  example.targets.fill_(kIgnoreIndex);
  const Scores found = evaluated(example, {5});
  EXPECT_EQ(found.miou, 0);
  EXPECT_EQ(found.accuracy, 0);
  EXPECT_EQ(found.loss, 0);
}

TEST(Segmentation, LearnsFromPixelsThatCount) {
  const Example example;
  Identity model;
  Batch batch = example.batch(0, kImages);
  batch.fields[0].values.set_requires_grad(true);
  const ops::Loss loss = task_of()->loss(model, batch, at::full({}, 0.25, at::kDouble));
  EXPECT_NEAR(loss.sum.item<double>() / static_cast<double>(batch.weight), by_hand(example).loss, 1e-12);
  loss.weighted.backward();
  const at::Tensor gradient = batch.input().grad();
  EXPECT_TRUE(gradient.abs().sum(-1).gt(0).equal(example.targets.ne(kIgnoreIndex)));
  EXPECT_EQ(task_of()->best_metric().name, "miou");
}

}  // namespace
}  // namespace gputrain::tasks

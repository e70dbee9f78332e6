#include "gputrain/ops/chunked_cross_entropy.hpp"

#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "gputrain/data/batch.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using testing_support::random_leaf;
using testing_support::relative_error;

constexpr int64_t kWhole = int64_t{1} << 40;

Head head_of(const at::Tensor& weight) {
  return {.logits = [weight](const at::Tensor& rows) { return at::matmul(rows, weight.t()); },
          .parameters = {weight},
          .columns = weight.size(0)};
}

/// 1,000 targets in 5 rows of 200, some of them ignored.
at::Tensor some_targets(int64_t classes) {
  at::Tensor targets = at::randint(classes, {5, 200}, at::TensorOptions().dtype(at::kLong));
  targets.narrow(1, 100, 30).fill_(kIgnoreIndex);
  return targets;
}

std::vector<int64_t> part_sizes(int64_t rows, int64_t columns, int64_t most_bytes) {
  std::vector<int64_t> sizes;
  Head head = head_of(random_leaf({columns, 2}, 1, at::kFloat));
  each_part(head, random_leaf({rows, 2}, 2, at::kFloat), at::full({rows}, 0, at::kLong), most_bytes,
            [&](const at::Tensor& part, const at::Tensor& targets) {
              EXPECT_EQ(part.size(0), targets.size(0));
              sizes.push_back(part.size(0));
            });
  return sizes;
}

TEST(HeadLoss, UsesFewestEqualPartsThatFit) {
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(part_sizes(1024, 10, 1024 * 40), Sizes{1024});
  EXPECT_EQ(part_sizes(1024, 10, 1023 * 40), (Sizes{512, 512}));
  EXPECT_EQ(part_sizes(1000, 10, 400 * 40), (Sizes{384, 384, 232}));
  EXPECT_EQ(part_sizes(5, 10, 2 * 40), (Sizes{2, 2, 1}));
  EXPECT_EQ(part_sizes(2, 10, 39), (Sizes{1, 1}));  // a row is never split
}

TEST(HeadLoss, MatchesWholeWhenInParts) {
  const at::Tensor targets = some_targets(11), share = at::full({}, 0.25, at::kDouble);
  const CrossEntropyOptions options{.classes = 11, .label_smoothing = 0.1, .weight = share};
  struct {
    at::Tensor features = random_leaf({5, 200, 6}, 3), weight = random_leaf({13, 6}, 4);  // two columns of padding
  } whole, parts;
  const Loss expected = chunked_cross_entropy(head_of(whole.weight), whole.features, targets, options, kWhole);
  const Loss loss = chunked_cross_entropy(head_of(parts.weight), parts.features, targets, options, 130 * 13 * 8);
  expected.weighted.backward();
  loss.weighted.backward();
  EXPECT_LT(relative_error(loss.sum, expected.sum), 1e-14);
  EXPECT_LT(relative_error(loss.weighted, expected.weighted), 1e-14);
  EXPECT_LT(relative_error(parts.features.grad(), whole.features.grad()), 1e-14);
  EXPECT_LT(relative_error(parts.weight.grad(), whole.weight.grad()), 1e-14);
}

TEST(HeadLoss, IsEqualInChunksWithFrozenParts) {
  const at::Tensor targets = some_targets(11);
  for (const bool frozen_head : {true, false}) {
    const at::Tensor features = random_leaf({5, 200, 6}, 3), weight = random_leaf({13, 6}, 4);
    (frozen_head ? weight : features).set_requires_grad(false);
    const at::Tensor& learns = frozen_head ? features : weight;
    chunked_cross_entropy(head_of(weight), features, targets, {.classes = 11}, kWhole).weighted.backward();
    const at::Tensor expected = learns.grad().clone();
    learns.mutable_grad().reset();
    chunked_cross_entropy(head_of(weight), features, targets, {.classes = 11}, 130 * 13 * 8).weighted.backward();
    EXPECT_LT(relative_error(learns.grad(), expected), 1e-14);
    EXPECT_FALSE((frozen_head ? weight : features).grad().defined());
  }
}

TEST(HeadLoss, HoldsLogitsOfOnePartAtATime) {
  device::install_host_allocator();
  const at::Tensor features = random_leaf({5, 200, 6}, 3, at::kFloat), weight = random_leaf({4096, 6}, 4, at::kFloat),
                   targets = some_targets(4096);
  const auto peak = [&](int64_t most_bytes) {
    device::forget_host_peak();
    const int64_t before = device::host_allocator_facts().in_use_bytes;
    chunked_cross_entropy(head_of(weight), features, targets, {.classes = 4096}, most_bytes).weighted.backward();
    return device::host_allocator_facts().peak_in_use_bytes - before;
  };
  const int64_t logits = 1000 * 4096 * 4;
  EXPECT_GT(peak(kWhole), logits);
  EXPECT_LT(peak(logits / 4), logits / 2);
}

TEST(HeadLoss, UsesPartsOnlyForGradients) {
  const at::Tensor features = random_leaf({5, 200, 6}, 3), weight = random_leaf({11, 6}, 4), targets = some_targets(11);
  const auto loss = [&] { return chunked_cross_entropy(head_of(weight), features, targets, {.classes = 11}, 1000); };
  const double learning = loss().sum.item<double>();
  const at::NoGradGuard no_grad;
  EXPECT_NEAR(loss().sum.item<double>(), learning, 1e-12 * learning);
  EXPECT_FALSE(weight.grad().defined());
}

TEST(HeadLoss, MustStartTheBackwardPass) {
  const at::Tensor features = random_leaf({5, 200, 6}, 3), weight = random_leaf({11, 6}, 4);
  const Loss loss = chunked_cross_entropy(head_of(weight), features, some_targets(11), {.classes = 11}, 1000);
  EXPECT_ANY_THROW(at::mul(loss.weighted, 2).backward());
}

}  // namespace
}  // namespace gputrain::ops

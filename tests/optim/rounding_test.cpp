// Weights and averages in bf16, rounded stochastically.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "gputrain/optim/gradients.hpp"
#include "gputrain/optim/weight_average.hpp"
#include "optim_fixture.hpp"

namespace gputrain::optim {
namespace {

constexpr const char* kNarrowRules[] = {"type: adamw", "{type: adamw, averages: bf16}",
                                        "{type: adamw8bit, min_8bit_size: 0}", "{type: adamw8bit}"};

at::Tensor constant_rate(double lr) { return at::full({}, lr, at::kDouble); }

/// A matrix and a vector whose values begin at 1.
struct RoundedModel {
  explicit RoundedModel(device::ArenaOptions options = {}, int64_t rows = 300) {
    for (const auto& sizes : {std::vector<int64_t>{rows, 33}, {77}})
      weights.push_back(at::empty(sizes, at::kFloat).requires_grad_(true));
    arena = std::make_unique<device::Arena>(
        std::vector<device::ArenaTensor>{{"matrix", weights[0], 0}, {"vector", weights[1], 1}}, options);
    const at::NoGradGuard no_grad;
    for (at::Tensor& weight : weights) weight.fill_(1);
  }
  void set_gradients(int step) const {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& weight : weights) {
      const at::Tensor places = at::arange(weight.numel(), at::kFloat).add_(step).mul_(0.7);
      weight.grad().copy_(places.sin_().view(weight.sizes()));
    }
  }
  void step(Optimizer& optimizer, int number, double lr = 1e-3) const {
    const at::NoGradGuard no_grad;
    set_gradients(number);
    optimizer.step({.lr = constant_rate(lr)});
  }

  std::vector<at::Tensor> weights;
  std::unique_ptr<device::Arena> arena;
};

const device::ArenaOptions kNarrow{.values_type = at::kBFloat16, .rounding_seed = 7};

TEST(NarrowWeights, AreTheOnlyOnes) {
  const RoundedModel model(kNarrow);
  EXPECT_EQ(model.weights[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(model.weights[0].grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(model.arena->make_state().scalar_type(), at::kFloat);
}

// Each update is far below half a unit in the last place of 1, so that rounding to the nearest would lose all of it.
TEST(NarrowWeights, KeepTheMeanOfSmallUpdates) {
  for (const std::string rule : kNarrowRules) {
    const RoundedModel narrow(kNarrow), wide;
    const auto narrow_rule = optimizer_of(rule, *narrow.arena), wide_rule = optimizer_of("type: adamw", *wide.arena);
    const at::NoGradGuard no_grad;
    for (int step = 1; step <= 50; ++step) {
      for (const RoundedModel* model : {&narrow, &wide})
        for (const at::Tensor& weight : model->weights) weight.grad().fill_(1);
      narrow_rule->step({.lr = constant_rate(1e-4)});
      wide_rule->step({.lr = constant_rate(1e-4)});
    }
    const auto way = [](const RoundedModel& model) {
      return 1 - model.weights[0].to(at::kDouble).mean().item<double>();
    };
    EXPECT_NEAR(way(wide), 0.005, 1e-3);
    EXPECT_NEAR(way(narrow) / way(wide), 1, 0.03) << rule;
  }
}

/// Ranks that share out an arena draw the bits of one that has all of it.
TEST(NarrowWeights, DoNotDependOnShares) {
  for (const std::string rule : {"type: adamw", "{type: adamw, averages: bf16}"}) {
    const RoundedModel whole(kNarrow);
    const auto alone = optimizer_of(rule, *whole.arena);
    for (int step = 1; step <= 3; ++step) whole.step(*alone, step);
    device::ArenaOptions shared = kNarrow;
    shared.shards = 3;
    for (int64_t rank = 0; rank < 3; ++rank) {
      const RoundedModel part(shared);
      const device::Shard shard = part.arena->shard_of(rank);
      part.arena->own(shard);
      const auto optimizer = optimizer_of(rule, *part.arena);
      for (int step = 1; step <= 3; ++step) part.step(*optimizer, step);
      for (size_t i = 0; i < 2; ++i) {
        const device::Segment& here = part.arena->segments()[i];
        for (const device::Range& range : shard) {
          const int64_t begin = std::max(range.begin, here.offset), end = std::min(range.end, here.offset + here.numel);
          if (begin >= end) continue;
          EXPECT_TRUE(part.weights[i]
                          .detach()
                          .view(-1)
                          .narrow(0, begin - here.offset, end - begin)
                          .equal(whole.weights[i].detach().view(-1).narrow(0, begin - here.offset, end - begin)))
              << rule;
        }
      }
    }
  }
}

TEST(NarrowWeights, ContinueExactlyFromRestoredState) {
  for (const std::string rule : kNarrowRules) {
    const RoundedModel first(kNarrow), second(kNarrow);
    const auto straight = optimizer_of(rule, *first.arena), resumed = optimizer_of(rule, *second.arena);
    for (int step = 1; step <= 3; ++step) first.step(*straight, step);
    const at::NoGradGuard no_grad;
    second.arena->values().copy_(first.arena->values());
    const Optimizer::State from = straight->state(), to = resumed->state();
    for (size_t i = 0; i < from.large().size(); ++i) to.large()[i].copy_(from.large()[i]);
    for (size_t i = 0; i < from.scalars.size(); ++i) to.scalars[i].second.copy_(from.scalars[i].second);
    for (int step = 4; step <= 6; ++step) {
      first.step(*straight, step);
      second.step(*resumed, step);
    }
    EXPECT_TRUE(first.arena->values().equal(second.arena->values())) << rule;
  }
}

TEST(NarrowWeights, AndTheirStateStayAsTheyAreIfGradientsAreNotFinite) {
  for (const std::string rule : kNarrowRules) {
    const RoundedModel model(kNarrow);
    const auto optimizer = optimizer_of(rule, *model.arena);
    model.step(*optimizer, 1);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> before{model.arena->values().clone()};
    for (const at::Tensor& tensor : optimizer->state().large()) before.push_back(tensor.clone());
    model.arena->gradients().fill_(std::nan(""));
    optimizer->step(
        {.lr = constant_rate(0.1), .found_inf = at::full({1}, 1, at::kFloat), .divisor = at::full({1}, 2, at::kFloat)});
    EXPECT_TRUE(before[0].equal(model.arena->values())) << rule;
    for (size_t i = 1; i < before.size(); ++i) EXPECT_TRUE(before[i].equal(optimizer->state().large()[i - 1])) << rule;
  }
}

TEST(NarrowWeights, UseOtherBitsForAnotherSeed) {
  device::ArenaOptions other = kNarrow;
  other.rounding_seed = 8;
  const RoundedModel one(kNarrow), same(kNarrow), another(other);
  for (const RoundedModel* model : {&one, &same, &another}) model->step(*optimizer_of("type: adamw", *model->arena), 1);
  EXPECT_TRUE(one.arena->values().equal(same.arena->values()));
  EXPECT_FALSE(one.arena->values().equal(another.arena->values()));
}

// The second average loses a thousandth in a step, a quarter of a unit in the last place.
TEST(NarrowAverages, FollowWideOnes) {
  const RoundedModel narrow, wide;
  const auto narrow_rule = optimizer_of("{type: adamw, averages: bf16}", *narrow.arena),
             wide_rule = optimizer_of("type: adamw", *wide.arena);
  narrow.step(*narrow_rule, 1);
  wide.step(*wide_rule, 1);
  const at::NoGradGuard no_grad;
  for (int step = 2; step <= 300; ++step) {
    for (const RoundedModel* model : {&narrow, &wide}) model->arena->gradients().zero_();
    narrow_rule->step({.lr = constant_rate(1e-4)});
    wide_rule->step({.lr = constant_rate(1e-4)});
  }
  const auto square = [](Optimizer& rule) {
    return rule.state().flat.at(1).second.to(at::kDouble).sum().item<double>();
  };
  EXPECT_EQ(narrow_rule->state().flat.at(1).second.scalar_type(), at::kBFloat16);
  EXPECT_NEAR(square(*narrow_rule) / square(*wide_rule), 1, 0.02);
}

TEST(NarrowWeights, HaveAWideAverageThatAnEvaluationLeavesAsItIs) {
  const RoundedModel model(kNarrow);
  WeightAverage optimizer(optimizer_of("type: adamw", *model.arena), *model.arena, {}, "ema");
  const at::NoGradGuard no_grad;
  for (int step = 1; step <= 20; ++step) {
    model.set_gradients(1);
    optimizer.step({.lr = constant_rate(1e-3), .average_weight = at::full({}, 1e-3, at::kDouble)});
  }
  const at::Tensor average = optimizer.state().flat.back().second, before = average.clone(),
                   trained = model.arena->values().clone();
  EXPECT_EQ(average.scalar_type(), at::kFloat);
  EXPECT_FALSE(average.to(at::kBFloat16).to(at::kFloat).equal(average));  // 16 bits cannot hold it
  optimizer.exchange_average();
  EXPECT_TRUE(model.arena->values().equal(before.to(at::kBFloat16)));
  optimizer.exchange_average();
  EXPECT_TRUE(model.arena->values().equal(trained));
  EXPECT_TRUE(average.equal(before));
}

// The shard of a later rank begins elsewhere in the arena than in its buffers.
TEST(WeightAverage, BeginsATensorAnewOnEachShard) {
  constexpr int64_t kRanks = 3;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const RoundedModel model({.shards = kRanks});
    const device::Arena& arena = *model.arena;
    model.arena->own(arena.shard_of(rank));
    WeightAverage optimizer(optimizer_of("type: adamw", arena), arena, {}, "ema");
    const at::NoGradGuard no_grad;
    const at::Tensor expected = arena.values().clone();
    const device::Segment& vector = arena.segments()[1];
    ASSERT_EQ(vector.name, "vector");
    for (const at::Tensor& weight : model.weights) weight.add_(at::arange(weight.numel()).view(weight.sizes()));
    arena.view(expected, vector).copy_(model.weights[1]);
    optimizer.begin_anew(vector.name);
    const at::Tensor average = optimizer.state().flat.back().second;
    for (const device::Piece& piece : arena.owned()) {
      const int64_t size = piece.range.size();
      EXPECT_TRUE(average.narrow(0, piece.at, size).equal(expected.narrow(0, piece.range.begin, size))) << rank;
    }
  }
}

TEST(MeasureGradient, SumsNarrowGradientsInFp32) {
  const at::Tensor gradient = at::full({100000}, 0.01, at::kBFloat16);
  const double one = gradient[0].item<double>();
  EXPECT_NEAR(measure_gradient({gradient}, {}).norm.item<double>(), one * std::sqrt(1e5), 1e-5);
}

}  // namespace
}  // namespace gputrain::optim

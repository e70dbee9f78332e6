#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/fake_gpu.hpp"

namespace gputrain::ops {
namespace {

TEST(KernelAutotuner, TakesOwnWayWhenRightAndFaster) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("slow", inputs(), kBoth, taking(3), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("wrong", inputs(), kBoth, taking(1, 1.001), taking(2)));
}

TEST(KernelAutotuner, FindsFastestWayOnceAndRemembersIt) {
  Machine machine;
  const std::vector<double> times{5, 3, 1, 2};
  int attempts = 0;
  const auto attempt = [&](size_t candidate) {
    ++attempts;
    if (candidate == 2) throw std::runtime_error("not on this device");
    ticks += times[candidate];
  };
  KernelAutotuner choice = machine.choice();
  EXPECT_EQ(choice.fastest("product", 4, attempt), 3U);
  EXPECT_GT(std::exchange(attempts, 0), 0);
  EXPECT_EQ(choice.fastest("product", 4, attempt), 3U);
  EXPECT_EQ(machine.choice().fastest("product", 4, attempt), 3U);
  EXPECT_EQ(attempts, 0);
  EXPECT_EQ(choice.fastest("one", 1, attempt), 0U);
  EXPECT_EQ(machine.choice("gpu", /*time_counts=*/false).fastest("other", 4, attempt), 0U);
  EXPECT_EQ(attempts, 0);
  EXPECT_EQ(choice.fastest("product", 3, attempt), 1U);  // the remembered way is out of range
  machine.can_measure = false;
  EXPECT_FALSE(choice.fastest("later", 4, attempt));
  machine.can_measure = true;
  EXPECT_EQ(choice.fastest("later", 4, attempt), 3U);
}

TEST(KernelAutotuner, TriesSlowWaysNoFurther) {
  Machine machine;
  std::vector<int> attempts(3);
  const std::vector<double> times{10, 11, 13};
  EXPECT_EQ(machine.choice().fastest("product", 3,
                                     [&](size_t candidate) {
                                       ++attempts[candidate];
                                       ticks += times[candidate];
                                     }),
            0U);
  EXPECT_THAT(attempts, testing::ElementsAre(4, 4, 2)) << "a first run and three turns, or one turn";
}

TEST(KernelAutotuner, RepeatsShortWorkInATurn) {
  Machine machine;
  std::vector<int> attempts(2);
  machine.choice().fastest("short", 2, [&](size_t candidate) {
    ++attempts[candidate];
    ticks += 1;
  });
  EXPECT_THAT(attempts, testing::ElementsAre(1 + 3 * 2, 1 + 3 * 2)) << "2 ms in each turn";
}

// A way that is being measured may start another choice: on a GPU in the backward pass, from another thread.
TEST(KernelAutotuner, AnswersWhileItMeasures) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  const OpImpl asks = [&](const Tensors& t) {
    std::thread([&] {
      EXPECT_EQ(choice.fastest("inner", 2, [](size_t candidate) { ticks += candidate == 1 ? 0 : 1; }), 1U);
    }).join();
    return taking(1)(t);
  };
  EXPECT_TRUE(choice.use_custom_kernel("outer", inputs(), kBoth, asks, taking(3)));
}

TEST(KernelAutotuner, ComparesOnPartOfLargeInputs) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  std::vector<int64_t> rows;
  const OpImpl notes = [&](const Tensors& t) {
    rows.push_back(t[0].size(0));
    return taking(1)(t);
  };
  const KernelAutotuner::Inputs grows{.batched = 1, .differentiable = 2, .growth = KernelAutotuner::kMostElements / 6};
  EXPECT_TRUE(choice.use_custom_kernel("grows", inputs(8), grows, notes, taking(3)));
  EXPECT_THAT(rows, testing::Each(2));  // rows of 3 elements
}

// A packed batch may be one row of texts.
TEST(KernelAutotuner, ComparesOnPartOfARowOfTokens) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  std::vector<std::vector<int64_t>> seen;
  const OpImpl notes = [&](const Tensors& t) {
    seen.push_back(t[0].sizes().vec());
    return taking(1)(t);
  };
  const KernelAutotuner::Inputs grows{.batched = 2, .differentiable = 2, .growth = KernelAutotuner::kMostElements / 6};
  const Tensors texts{testing_support::random_leaf({1, 8, 3}, 1, at::kFloat),
                      testing_support::random_leaf({1, 8, 3}, 2, at::kFloat)};
  EXPECT_TRUE(choice.use_custom_kernel("grows", texts, grows, notes, taking(3)));
  EXPECT_THAT(seen, testing::Each(testing::ElementsAre(1, 2, 3)));
}

// A last layer of 150,000 words is larger than a comparison may be, whatever its rows are.
TEST(KernelAutotuner, ComparesOnPartOfTheOutputs) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  std::vector<int64_t> outputs;
  const OpImpl product = [&](const Tensors& t) {
    outputs.push_back(t[1].size(0));
    EXPECT_EQ(t[2].size(0), t[1].size(0));
    ticks += 1;
    return Tensors{at::mul(at::mm(t[0], t[1].t()), t[2])};
  };
  const auto slower = [&](const Tensors& t) {
    ticks += 2;
    return product(t);
  };
  constexpr int64_t kIn = KernelAutotuner::kMostElements / 128;
  const Tensors layer{at::ones({2, kIn}), at::ones({200, 1}).expand({200, kIn}), at::ones({200})};
  EXPECT_TRUE(
      choice.use_custom_kernel("head", layer, {.differentiable = 0, .has_outputs_by_row = true}, product, slower));
  EXPECT_THAT(outputs, testing::Each(128));
}

TEST(KernelAutotuner, TakesFirstOfWaysThatAreNotToBeTried) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  choice.keep_in(machine.run);
  const auto second = [](size_t way) { ticks += way == 1 ? 1 : 2; };
  const auto never = [](size_t) { FAIL() << "tried"; };
  const auto not_asked = [] {
    ADD_FAILURE() << "asked";
    return false;
  };
  EXPECT_EQ(choice.fastest("tried", 2, second), 1U);
  EXPECT_EQ(choice.fastest("tried", 2, never, not_asked), 1U);
  EXPECT_EQ(choice.fastest("untried", 2, never, [] { return false; }), 0U);
  choice.settle("tried", 0);  // as where its kernel is gone
  for (const char* name : {"tried", "untried"}) {
    EXPECT_EQ(choice.fastest(name, 2, never), 0U);
    KernelAutotuner resumed = machine.choice();
    resumed.keep_in(machine.run);
    EXPECT_EQ(resumed.fastest(name, 2, never), 0U);  // the run goes on with the same kernels
  }
}

TEST(KernelAutotuner, TriesNothingOnceItsTimeIsUp) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  EXPECT_TRUE(choice.use_custom_kernel("faster", inputs(), kBoth, taking(1), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("slower", inputs(), kBoth, taking(2), taking(1)));
  choice.limit_trials(0);
  const int before = std::exchange(machine.measured, 0);
  EXPECT_GT(before, 0);
  EXPECT_TRUE(choice.use_custom_kernel("faster", inputs(5), kBoth, taking(2), taking(1)));
  EXPECT_FALSE(choice.use_custom_kernel("slower", inputs(5), kBoth, taking(1), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("unknown", inputs(), kBoth, taking(1), taking(2)));
  EXPECT_EQ(choice.fastest("ways", 3, [](size_t) { FAIL() << "tried"; }), 0);
  EXPECT_EQ(machine.measured, 0);
  const KernelAutotuner::Inputs replicated{.batched = 1, .differentiable = 2, .replicated = true};
  EXPECT_TRUE(choice.use_custom_kernel("needed", inputs(), replicated, taking(2), taking(1)));
}

// For example cuDNN plans: a plan for a part of the batch says nothing about the whole.
TEST(KernelAutotuner, ComparesAllOfSizeBoundKernelsIfMemoryAllows) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  std::vector<int64_t> rows;
  int64_t most = 8;
  const OpImpl notes = [&](const Tensors& t) {
    rows.push_back(t[0].size(0));
    if (rows.back() > most) throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "too many rows");
    return taking(1)(t);
  };
  const KernelAutotuner::Inputs grows{
      .batched = 1, .differentiable = 2, .growth = KernelAutotuner::kMostElements / 6, .whole = true};
  EXPECT_TRUE(choice.use_custom_kernel("grows", inputs(8), grows, notes, taking(3)));
  EXPECT_THAT(std::exchange(rows, {}), testing::Each(8));
  most = 3;
  EXPECT_TRUE(choice.use_custom_kernel("larger", inputs(8), grows, notes, taking(3)));
  EXPECT_EQ(rows.front(), 8);
  EXPECT_EQ(rows.back(), 2);  // like without `whole`
}

TEST(KernelAutotuner, MeasuresAside) {
  int begun = 0, ended = 0;
  KernelAutotuner choice({.milliseconds =
                              [&](const std::function<void()>& work) {
                                EXPECT_EQ(begun, ended + 1);
                                work();
                                return 1.0;
                              },
                          .can_measure = [] { return true; },
                          .aside =
                              [&] {
                                ++begun;
                                return std::shared_ptr<void>(nullptr, [&](void*) { ++ended; });
                              }});
  choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2));
  choice.fastest("ways", 2, [](size_t) {});
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(ended, 2);
}

// A comparison may need more memory than is free beside the step's tensors; it then uses fewer rows.
TEST(KernelAutotuner, ComparesOnWhatFitsIntoMemory) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  const auto with_memory_for = [](int64_t rows) -> OpImpl {
    return [rows](const Tensors& t) {
      if (t[0].size(0) > rows) throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "too many rows");
      return taking(1)(t);
    };
  };
  const KernelAutotuner::Inputs grows{
      .batched = 1, .differentiable = 2, .growth = KernelAutotuner::kMostElements / 64 / 3};
  EXPECT_TRUE(choice.use_custom_kernel("grows", inputs(100), grows, with_memory_for(8), taking(3)));
  EXPECT_FALSE(choice.use_custom_kernel("too large", inputs(100), grows, with_memory_for(0), taking(3)));
}

TEST(KernelAutotuner, ComparesGradientsToo) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  const OpImpl forgets_one = [](const Tensors& t) { return Tensors{at::mul(t[0], t[1].detach())}; };
  const OpImpl doubles_one = [](const Tensors& t) {
    const at::Tensor y = at::mul(t[0], t[1]);
    return Tensors{at::add(y, at::add(t[1], t[1].detach(), -1).expand_as(y))};
  };
  EXPECT_FALSE(choice.use_custom_kernel("forgets", inputs(), kBoth, forgets_one, taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("doubles", inputs(), kBoth, doubles_one, taking(2)));
}

TEST(KernelAutotuner, IsMadeOncePerShapeAndType) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
  const int measured = machine.measured;
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(9), taking(2)));
  EXPECT_EQ(machine.measured, measured);
  EXPECT_FALSE(choice.use_custom_kernel("product", inputs(5), kBoth, taking(9), taking(2)));
}

TEST(KernelAutotuner, FallsBackToAtenWithoutMeasurement) {
  Machine machine;
  machine.can_measure = false;
  KernelAutotuner choice = machine.choice();
  EXPECT_FALSE(choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
  machine.can_measure = true;
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
}

TEST(KernelAutotuner, IgnoresTimeWhenDeterministic) {
  Machine machine;
  KernelAutotuner choice = machine.choice("gpu", /*time_counts=*/false);
  EXPECT_TRUE(choice.use_custom_kernel("slow", inputs(), kBoth, taking(3), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("wrong", inputs(), kBoth, taking(3, 2), taking(2)));
}

// Ranks that update replicated weights drift apart if one rank takes another way.
TEST(KernelAutotuner, IgnoresTimeWhereRanksMustAgree) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  const KernelAutotuner::Inputs replicated{.batched = 1, .differentiable = 2, .replicated = true};
  EXPECT_TRUE(choice.use_custom_kernel("slow", inputs(), replicated, taking(3), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("wrong", inputs(), replicated, taking(1, 1.001), taking(2)));
}

TEST(KernelAutotuner, FallsBackToAtenWhenOwnWayThrows) {
  Machine machine;
  const OpImpl throws = [](const Tensors&) -> Tensors { throw std::runtime_error("no such kernel"); };
  EXPECT_FALSE(machine.choice().use_custom_kernel("throws", inputs(), kBoth, throws, taking(2)));
}

TEST(KernelAutotuner, MayBeAskedByAComparedWay) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  const OpImpl asks = [&](const Tensors& t) {
    const Tensors values{t[0].detach(), t[1].detach()};
    EXPECT_TRUE(choice.use_custom_kernel("inner", values, {.batched = 1, .differentiable = 0}, taking(1), taking(2)));
    return taking(1)(t);
  };
  EXPECT_TRUE(choice.use_custom_kernel("outer", inputs(), kBoth, asks, taking(2)));
}

// The exact results are the reference's in fp32: operators inside it would be tried in a type that the run never uses.
TEST(KernelAutotuner, TriesNothingWithinExactResults) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  std::vector<std::pair<at::ScalarType, bool>> answers;
  const OpImpl reference = [&](const Tensors& t) {
    const Tensors values{t[0].detach(), t[1].detach()};
    const KernelAutotuner::Inputs kinds{.batched = 1, .differentiable = 0};
    answers.emplace_back(t[0].scalar_type(), choice.use_custom_kernel("inner", values, kinds, taking(1), taking(2)));
    return taking(2)(t);
  };
  const Tensors given{inputs()[0].detach().to(at::kBFloat16), inputs()[1].detach().to(at::kBFloat16)};
  EXPECT_TRUE(choice.use_custom_kernel("outer", given, kBoth, taking(1), reference));
  EXPECT_THAT(answers, testing::Contains(std::pair(at::kFloat, false)));
  EXPECT_THAT(answers, testing::Contains(std::pair(at::kBFloat16, true)));
  EXPECT_THAT(answers, testing::Not(testing::Contains(std::pair(at::kFloat, true))));
  EXPECT_EQ(choice.trials().done().count, 2) << "the outer one, and the inner one in bf16";
  EXPECT_TRUE(choice.use_custom_kernel("inner", inputs(), kBoth, taking(1), taking(2))) << "no answer is remembered";
}

TEST(KernelAutotuner, DrawsNoRandomNumbersOfTheRun) {
  Machine machine;
  at::manual_seed(5);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(5);
  machine.choice().use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2));
  EXPECT_TRUE(at::rand({4}).equal(expected));
}

// A first step in fp16 often overflows: that says nothing about a way and must not reject it.
TEST(KernelAutotuner, IsMadeFromFiniteInputs) {
  Machine machine;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  KernelAutotuner choice = machine.choice();
  for (const float value : {inf, -inf, nan}) {
    const Tensors given = inputs();
    given[0].detach()[1].fill_(value);
    const std::string name = "of " + std::to_string(value);
    EXPECT_TRUE(choice.use_custom_kernel(name, given, kBoth, taking(1), taking(2)));
    EXPECT_FALSE(choice.use_custom_kernel(name + ", wrong", given, kBoth, taking(1, 1.001), taking(2)));
  }
}

TEST(KernelAutotuner, IsTheSameWithoutGradient) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(9), taking(2)));
}

TEST(KernelAutotuner, LeavesInputsAndGradientsAlone) {
  Machine machine;
  const Tensors given = inputs();
  const at::Tensor before = given[0].detach().clone();
  const OpImpl overwrites = [](const Tensors& t) {
    const at::Tensor y = at::mul(t[0], t[1]);
    t[0].detach().zero_();
    return Tensors{y};
  };
  machine.choice().use_custom_kernel("overwrites", given, kBoth, overwrites, taking(2));
  EXPECT_TRUE(given[0].equal(before));
  EXPECT_FALSE(given[0].grad().defined());
}

}  // namespace
}  // namespace gputrain::ops

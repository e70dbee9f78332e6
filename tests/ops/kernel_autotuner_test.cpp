#include "../../src/ops/dispatch/kernel_autotuner.hpp"

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using testing_support::random_leaf;

/// A fake clock in ticks: each way below advances it by its time.
double ticks = 0;
OpImpl taking(double time, double factor = 1) {
  return [=](const Tensors& t) {
    ticks += time;
    return Tensors{at::mul(at::mul(t[0], t[1]), factor)};
  };
}

constexpr KernelAutotuner::Inputs kBoth{.batched = 1, .differentiable = 2};

struct Machine {
  std::filesystem::path file = std::filesystem::temp_directory_path() / fmt_name();
  bool can_measure = true;
  int measured = 0;

  static std::string fmt_name() { return "choices_" + std::to_string(::getpid()) + ".jsonl"; }
  std::filesystem::path run = file.string() + ".run";

  Machine() { clean(); }
  ~Machine() { clean(); }
  void clean() const {
    for (const std::string more : {"", ".run", ".trials"}) std::filesystem::remove_all(file.string() + more);
  }

  KernelAutotuner choice(const std::string& name = "gpu", bool time_counts = true) {
    return KernelAutotuner({.machine = name,
                            .file = file,
                            .time_counts = time_counts,
                            .milliseconds =
                                [this](const std::function<void()>& work) {
                                  ++measured;
                                  const double before = ticks;
                                  work();
                                  return ticks - before;
                                },
                            .can_measure = [this] { return can_measure; }});
  }
};

Tensors inputs(int64_t rows = 4) { return {random_leaf({rows, 3}, 1, at::kFloat), random_leaf({3}, 2, at::kFloat)}; }

TEST(PathChoice, TakesOwnWayWhenRightAndFaster) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("slow", inputs(), kBoth, taking(3), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("wrong", inputs(), kBoth, taking(1, 1.001), taking(2)));
}

TEST(PathChoice, FindsFastestWayOnceAndRemembersIt) {
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

TEST(PathChoice, TriesSlowWaysNoFurther) {
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

TEST(PathChoice, RepeatsShortWorkInATurn) {
  Machine machine;
  std::vector<int> attempts(2);
  machine.choice().fastest("short", 2, [&](size_t candidate) {
    ++attempts[candidate];
    ticks += 1;
  });
  EXPECT_THAT(attempts, testing::ElementsAre(1 + 3 * 2, 1 + 3 * 2)) << "2 ms in each turn";
}

/// Writes what a process leaves behind that was killed during this trial.
void kill_during(Machine& machine, const std::string& trial) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto* choice = new KernelAutotuner({.machine = "gpu", .file = machine.file});
    const auto running = choice->begin_trial(trial);
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
}

TEST(PathChoice, PassesByWhatCrashedTwice) {
  Machine machine;
  int attempts = 0;
  const auto attempt = [&](size_t candidate) {
    ++attempts;
    ticks += candidate == 1 ? 1 : 2;
  };
  kill_during(machine, "product");
  kill_during(machine, "product");
  KernelAutotuner choice = machine.choice();
  EXPECT_THROW(choice.fastest("product", 2, attempt), NoKernel);
  EXPECT_EQ(attempts, 0);
  EXPECT_THROW(static_cast<void>(choice.begin_trial("product")), NoKernel);
  EXPECT_EQ(choice.fastest("other", 2, attempt), 1U);
  EXPECT_EQ(machine.choice("another").fastest("product", 2, attempt), 1U);
}

TEST(PathChoice, TriesAgainAfterOneCrash) {
  Machine machine;
  const auto attempt = [&](size_t candidate) { ticks += candidate == 1 ? 1 : 2; };
  kill_during(machine, "product");
  EXPECT_EQ(machine.choice().fastest("product", 2, attempt), 1U);
  std::filesystem::remove(machine.file);
  kill_during(machine, "product");
  EXPECT_EQ(machine.choice().fastest("product", 2, attempt), 1U);  // the result counts, not the crash before it
  kill_during(machine, "other");
  EXPECT_EQ(machine.choice().fastest("other", 2, attempt), 1U);
}

// A search for a batch size chooses before the run has its folder.
TEST(PathChoice, IsKeptWithTheRunIfMadeBefore) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  EXPECT_EQ(choice.fastest("ways", 2, [](size_t candidate) { ticks += candidate == 1 ? 1 : 2; }), 1U);
  choice.keep_in(machine.run);
  std::filesystem::remove(machine.file);
  KernelAutotuner resumed = machine.choice();
  resumed.keep_in(machine.run);
  EXPECT_EQ(resumed.fastest("ways", 2, [](size_t candidate) { ticks += candidate == 1 ? 2 : 1; }), 1U);
}

TEST(PathChoice, PassesByAnOperatorThatCrashedTwice) {
  Machine machine;
  KernelAutotuner first = machine.choice();
  std::string key;
  first.trials().set_listener([&](int64_t, std::string_view name) { key = name; });
  EXPECT_TRUE(first.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
  std::filesystem::remove(machine.file);
  kill_during(machine, key);
  kill_during(machine, key);
  EXPECT_FALSE(machine.choice().use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
}

// The next attempt of the run may start on a new machine, or after another run has chosen otherwise.
TEST(PathChoice, IsKeptWithTheRun) {
  Machine machine;
  const auto attempt = [&](size_t candidate) { ticks += candidate == 1 ? 1 : 2; };
  const auto other_attempt = [&](size_t candidate) { ticks += candidate == 1 ? 2 : 1; };
  {
    KernelAutotuner chosen_before = machine.choice();  // by another run
    EXPECT_TRUE(chosen_before.use_custom_kernel("known", inputs(), kBoth, taking(1), taking(2)));
    EXPECT_EQ(chosen_before.fastest("known ways", 2, attempt), 1U);
    KernelAutotuner choice = machine.choice();
    choice.keep_in(machine.run);
    EXPECT_TRUE(choice.use_custom_kernel("known", inputs(), kBoth, taking(9), taking(2)));
    EXPECT_EQ(choice.fastest("known ways", 2, other_attempt), 1U);
    EXPECT_TRUE(choice.use_custom_kernel("new", inputs(), kBoth, taking(1), taking(2)));
    const OpImpl fails = [](const Tensors&) -> Tensors { throw std::runtime_error("short of memory"); };
    for (int use = 0; use < 2; ++use)
      EXPECT_FALSE(choice.use_custom_kernel("failed", inputs(), kBoth, fails, taking(2)));
  }
  std::filesystem::remove(machine.file);
  EXPECT_FALSE(machine.choice().use_custom_kernel("known", inputs(), kBoth, taking(9), taking(2)));
  KernelAutotuner resumed = machine.choice();
  resumed.keep_in(machine.run);
  EXPECT_TRUE(resumed.use_custom_kernel("known", inputs(), kBoth, taking(9), taking(2)));
  EXPECT_TRUE(resumed.use_custom_kernel("new", inputs(), kBoth, taking(9), taking(2)));
  EXPECT_TRUE(resumed.use_custom_kernel("failed", inputs(), kBoth, taking(1), taking(2))) << "tried again";
  EXPECT_EQ(resumed.fastest("known ways", 2, other_attempt), 1U);
}

// A search for a batch size meets each shape once.
TEST(PathChoice, IsForgottenIfItWasRough) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  EXPECT_TRUE(choice.use_custom_kernel("before", inputs(), kBoth, taking(1), taking(2)));
  const OpImpl builds = [&](const Tensors& t) {
    if (choice.chooses_roughly()) throw NoKernelYet("built later");
    return taking(1)(t);
  };
  choice.begin_rough_choices();
  EXPECT_TRUE(choice.use_custom_kernel("before", inputs(), kBoth, taking(9), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("built", inputs(), kBoth, builds, taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("slow", inputs(), kBoth, taking(3), taking(2)));
  choice.end_rough_choices();
  EXPECT_TRUE(choice.use_custom_kernel("before", inputs(), kBoth, taking(9), taking(2)));
  EXPECT_TRUE(choice.use_custom_kernel("built", inputs(), kBoth, builds, taking(2)));
  EXPECT_TRUE(choice.use_custom_kernel("slow", inputs(), kBoth, taking(1), taking(2)));
  EXPECT_TRUE(machine.choice().use_custom_kernel("slow", inputs(), kBoth, taking(9), taking(2)));
}

// A way that is being measured may start another choice: on a GPU in the backward pass, from another thread.
TEST(PathChoice, AnswersWhileItMeasures) {
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

TEST(PathChoice, ComparesOnPartOfLargeInputs) {
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

// For example cuDNN plans: a plan for a part of the batch says nothing about the whole.
TEST(PathChoice, ComparesAllOfSizeBoundKernelsIfMemoryAllows) {
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

TEST(PathChoice, MeasuresAside) {
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
TEST(PathChoice, ComparesOnWhatFitsIntoMemory) {
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

TEST(PathChoice, ComparesGradientsToo) {
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

TEST(PathChoice, IsMadeOncePerShapeAndType) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
  const int measured = machine.measured;
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(9), taking(2)));
  EXPECT_EQ(machine.measured, measured);
  EXPECT_FALSE(choice.use_custom_kernel("product", inputs(5), kBoth, taking(9), taking(2)));
}

TEST(PathChoice, IsRememberedForTheSameMachineOnly) {
  Machine machine;
  machine.choice().use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2));
  std::ofstream(machine.file, std::ios::app) << "torn {\n[]\n{\"machine\": \"gpu\"}\n";
  EXPECT_TRUE(machine.choice().use_custom_kernel("product", inputs(), kBoth, taking(9), taking(2)));
  EXPECT_FALSE(machine.choice("another").use_custom_kernel("product", inputs(), kBoth, taking(9), taking(2)));
}

TEST(PathChoice, FallsBackToAtenWithoutMeasurement) {
  Machine machine;
  machine.can_measure = false;
  KernelAutotuner choice = machine.choice();
  EXPECT_FALSE(choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
  machine.can_measure = true;
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
}

TEST(PathChoice, IgnoresTimeWhenDeterministic) {
  Machine machine;
  KernelAutotuner choice = machine.choice("gpu", /*time_counts=*/false);
  EXPECT_TRUE(choice.use_custom_kernel("slow", inputs(), kBoth, taking(3), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("wrong", inputs(), kBoth, taking(3, 2), taking(2)));
}

// Nor must it use results of a run with a clock, and such a run must not use results without one.
TEST(PathChoice, IsRememberedSeparatelyWithoutClock) {
  Machine machine;
  EXPECT_FALSE(machine.choice().use_custom_kernel("slow", inputs(), kBoth, taking(3), taking(2)));
  EXPECT_TRUE(
      machine.choice("gpu", /*time_counts=*/false).use_custom_kernel("slow", inputs(), kBoth, taking(3), taking(2)));
  EXPECT_TRUE(
      machine.choice("gpu", /*time_counts=*/false).use_custom_kernel("other", inputs(), kBoth, taking(3), taking(2)));
  EXPECT_FALSE(machine.choice().use_custom_kernel("other", inputs(), kBoth, taking(3), taking(2)));
}

// Ranks that update replicated weights drift apart if one rank takes another way.
TEST(PathChoice, IgnoresTimeWhereRanksMustAgree) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  const KernelAutotuner::Inputs replicated{.batched = 1, .differentiable = 2, .replicated = true};
  EXPECT_TRUE(choice.use_custom_kernel("slow", inputs(), replicated, taking(3), taking(2)));
  EXPECT_FALSE(choice.use_custom_kernel("wrong", inputs(), replicated, taking(1, 1.001), taking(2)));
}

TEST(PathChoice, FallsBackToAtenWhenOwnWayThrows) {
  Machine machine;
  const OpImpl throws = [](const Tensors&) -> Tensors { throw std::runtime_error("no such kernel"); };
  EXPECT_FALSE(machine.choice().use_custom_kernel("throws", inputs(), kBoth, throws, taking(2)));
}

TEST(PathChoice, MayBeAskedByAComparedWay) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  const OpImpl asks = [&](const Tensors& t) {
    const Tensors values{t[0].detach(), t[1].detach()};
    EXPECT_TRUE(choice.use_custom_kernel("inner", values, {.batched = 1, .differentiable = 0}, taking(1), taking(2)));
    return taking(1)(t);
  };
  EXPECT_TRUE(choice.use_custom_kernel("outer", inputs(), kBoth, asks, taking(2)));
}

TEST(PathChoice, DrawsNoRandomNumbersOfTheRun) {
  Machine machine;
  at::manual_seed(5);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(5);
  machine.choice().use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2));
  EXPECT_TRUE(at::rand({4}).equal(expected));
}

// A first step in fp16 often overflows: that says nothing about a way and must not reject it.
TEST(PathChoice, IsMadeFromFiniteInputs) {
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

TEST(PathChoice, IsTheSameWithoutGradient) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(choice.use_custom_kernel("product", inputs(), kBoth, taking(9), taking(2)));
}

TEST(PathChoice, LeavesInputsAndGradientsAlone) {
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

// What KernelAutotuner remembers: over processes, with a run, and of crashes.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/fake_gpu.hpp"

namespace gputrain::ops {
namespace {

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

TEST(KeptKernelChoices, PassesByWhatCrashedTwice) {
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

TEST(KeptKernelChoices, TriesAgainAfterOneCrash) {
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
TEST(KeptKernelChoices, IsKeptWithTheRunIfMadeBefore) {
  Machine machine;
  KernelAutotuner choice = machine.choice();
  EXPECT_EQ(choice.fastest("ways", 2, [](size_t candidate) { ticks += candidate == 1 ? 1 : 2; }), 1U);
  choice.keep_in(machine.run);
  std::filesystem::remove(machine.file);
  KernelAutotuner resumed = machine.choice();
  resumed.keep_in(machine.run);
  EXPECT_EQ(resumed.fastest("ways", 2, [](size_t candidate) { ticks += candidate == 1 ? 2 : 1; }), 1U);
}

TEST(KeptKernelChoices, OfAnEarlierVersionDoNotCount) {
  Machine machine;
  EXPECT_FALSE(machine.choice().use_custom_kernel("product", inputs(), kBoth, taking(2), taking(1)));
  KernelAutotuner::Inputs changed = kBoth;
  changed.version = 2;
  EXPECT_TRUE(machine.choice().use_custom_kernel("product", inputs(), changed, taking(1), taking(2)));
  EXPECT_FALSE(machine.choice().use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2)));
}

TEST(KeptKernelChoices, PassesByAnOperatorThatCrashedTwice) {
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
TEST(KeptKernelChoices, IsKeptWithTheRun) {
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
TEST(KeptKernelChoices, IsForgottenIfItWasRough) {
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

TEST(KeptKernelChoices, IsRememberedForTheSameMachineOnly) {
  Machine machine;
  machine.choice().use_custom_kernel("product", inputs(), kBoth, taking(1), taking(2));
  std::ofstream(machine.file, std::ios::app) << "torn {\n[]\n{\"machine\": \"gpu\"}\n";
  EXPECT_TRUE(machine.choice().use_custom_kernel("product", inputs(), kBoth, taking(9), taking(2)));
  EXPECT_FALSE(machine.choice("another").use_custom_kernel("product", inputs(), kBoth, taking(9), taking(2)));
}

// Nor must it use results of a run with a clock, and such a run must not use results without one.
TEST(KeptKernelChoices, IsRememberedSeparatelyWithoutClock) {
  Machine machine;
  EXPECT_FALSE(machine.choice().use_custom_kernel("slow", inputs(), kBoth, taking(3), taking(2)));
  EXPECT_TRUE(
      machine.choice("gpu", /*time_counts=*/false).use_custom_kernel("slow", inputs(), kBoth, taking(3), taking(2)));
  EXPECT_TRUE(
      machine.choice("gpu", /*time_counts=*/false).use_custom_kernel("other", inputs(), kBoth, taking(3), taking(2)));
  EXPECT_FALSE(machine.choice().use_custom_kernel("other", inputs(), kBoth, taking(3), taking(2)));
}

}  // namespace
}  // namespace gputrain::ops

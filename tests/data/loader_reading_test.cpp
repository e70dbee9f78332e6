// How a loader reads: its memory, its threads, and storage that is silent.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <c10/core/InferenceMode.h>

#include "data/loaded_steps.hpp"
#include "data/numbered_dataset.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/loader.hpp"

namespace gputrain::data {
namespace {

TEST(Loader, LeavesBatchesToTheCaller) {
  const c10::InferenceMode views_do_not_keep_their_base;
  const auto dataset = std::make_shared<NumberedDataset>(4000);
  for (const int workers : {0, 2}) {
    Loader loader(dataset, options_for(8, 8, workers));
    std::vector<StepData> kept;
    std::vector<std::vector<int64_t>> expected;
    std::vector<at::Tensor> views;  // a view alone must also keep the memory
    for (int i = 0; i < 20; ++i) {
      StepData step = loader.next_step();
      expected.push_back(values(step.micro_batches[0].tensor(kTarget)));
      views.push_back(step.micro_batches[0].tensor(kTarget).narrow(0, 0, 8));
      if (i % 2 == 0) kept.push_back(std::move(step));
    }
    for (size_t i = 0; i < views.size(); ++i) EXPECT_EQ(values(views[i]), expected[i]);
  }
}

TEST(Loader, ReusesMemoryTheCallerReleased) {
  const auto dataset = std::make_shared<NumberedDataset>(4000);
  for (const int workers : {0, 2}) {
    Loader loader(dataset, options_for(8, 8, workers));
    std::set<const void*> addresses;
    for (int i = 0; i < 50; ++i) addresses.insert(loader.next_step().micro_batches[0].input().const_data_ptr());
    EXPECT_LE(addresses.size(), 4u);
  }
}

TEST(Loader, ReadsAtMostThePrefetchAhead) {
  const auto dataset = std::make_shared<NumberedDataset>(100000);
  LoaderOptions options = options_for(10, 10, 3);
  options.prefetch_batches = 4;
  Loader loader(dataset, options);
  EXPECT_EQ(dataset->reads, 0) << "nothing starts before it is asked for";
  loader.next_step();
  for (int i = 0; i < 2000 && dataset->reads < 50; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(dataset->reads, 50);
}

TEST(Loader, ReadsNothingPastTheEnd) {
  const auto dataset = std::make_shared<NumberedDataset>(100);
  LoaderOptions options = options_for(10, 5, 2);
  options.prefetch_batches = 8;
  options.steps = 3;
  {
    Loader loader(dataset, options);
    for (int i = 0; i < 3; ++i) loader.next_step();
    EXPECT_THROW(loader.next_step(), std::logic_error);
  }
  EXPECT_EQ(dataset->reads, 30);
}

TEST(Loader, RunsOnBeyondCountableSteps) {
  const auto dataset = std::make_shared<NumberedDataset>(100);
  LoaderOptions options = options_for(10, 5, 2);
  options.steps = int64_t{1} << 62;  // steps of two micro-batches each
  Loader loader(dataset, options);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(loader.next_step().samples, 10);
}

TEST(Loader, StopsAtAnyMoment) {
  const auto dataset = std::make_shared<NumberedDataset>(1000);
  dataset->delay_microseconds = 200;
  for (int i = 0; i < 20; ++i) {
    Loader loader(dataset, options_for(16, 8, 4));
    loader.next_step();
    if (i % 3 == 1) loader.next_step();
    if (i % 3 == 2) std::this_thread::sleep_for(std::chrono::microseconds(150 * i));
  }
}

TEST(Loader, GivesUpOnSilentStorage) {
  const auto dataset = std::make_shared<NumberedDataset>(10);
  dataset->delay_microseconds = 300'000;
  LoaderOptions options = options_for(2, 2, 1);
  options.timeout_seconds = 0.05;
  Loader loader(dataset, options);
  try {
    loader.next_step();
    FAIL() << "waited on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::restart);
  }
}

/// Storage that does not respond until `answers` is set.
class SilentDataset final : public NumberedDataset {
 public:
  SilentDataset() : NumberedDataset(10) { cheap = false; }
  void read(int64_t index, const ReadContext& context, const SampleRow& row) const override {
    answers.wait(false);
    NumberedDataset::read(index, context, row);
  }
  std::atomic<bool> answers = false;
};

TEST(Loader, DoesNotWaitForSilentStorageAtItsEnd) {
  const auto dataset = std::make_shared<SilentDataset>();
  LoaderOptions options = options_for(2, 2, 2);
  options.timeout_seconds = 0.05;
  auto ended = std::async(std::launch::async, [&] {
    Loader loader(dataset, options);
    EXPECT_THROW(loader.next_step(), Error);
  });
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  dataset->answers = true;
  dataset->answers.notify_all();
  ended.get();
}

}  // namespace
}  // namespace gputrain::data

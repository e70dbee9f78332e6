// Unreadable samples: reported with their number, or skipped up to data.max_bad_fraction.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/loaded_steps.hpp"
#include "data/numbered_dataset.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/loader.hpp"

namespace gputrain::data {
namespace {

using ::testing::HasSubstr;

TEST(BadSamples, EndReadingWithEarliestErrorAndPath) {
  for (const int workers : {0, 1, 4}) {
    for (const bool cheap : {true, false}) {
      const auto dataset = std::make_shared<NumberedDataset>(100);
      dataset->cheap = cheap;
      dataset->broken = {37, 35, 90};
      LoaderOptions options = options_for(20, 10, workers);
      options.shuffle = false;
      Loader loader(dataset, options);
      loader.next_step();
      for (int attempt = 0; attempt < 2; ++attempt) {
        try {
          loader.next_step();
          FAIL() << "no error";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ExitCode::data);
          EXPECT_THAT(error.what(), HasSubstr("img/35: cannot decode (sample 35)"));
          EXPECT_THAT(error.parts().hint, HasSubstr("data.max_bad_fraction"));
        }
      }
    }
  }
}

TEST(BadSamples, IncludeTargetsThatAreNoClass) {
  for (const int64_t target : {10, -3}) {
    const auto dataset = std::make_shared<NumberedDataset>(10);
    dataset->wrong_labels = {{4, target}};
    try {
      Loader(dataset, options_for(10, 10)).next_step();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_THAT(error.what(), HasSubstr("target " + std::to_string(target) + " is not one of 10 classes (sample 4)"));
    }
  }
}

TEST(BadSamples, AreSkippedWithinAllowedFraction) {
  for (const int workers : {0, 3}) {
    const auto dataset = std::make_shared<NumberedDataset>(100);
    dataset->broken = {3, 55};
    LoaderOptions options = options_for(10, 10, workers);
    options.max_bad_fraction = 0.02;
    std::vector<int64_t> told;
    options.on_bad_sample = [&told](const BadSample& bad) {
      EXPECT_THAT(bad.message, HasSubstr("img/" + std::to_string(bad.index)));
      told.push_back(bad.index);
    };
    Loader loader(dataset, options);
    for (int epoch = 0; epoch < 2; ++epoch) {
      int64_t weight = 0, samples = 0;
      for (int i = 0; i < 10; ++i) {
        const StepData step = loader.next_step();
        weight += step.weight;
        samples += step.samples;
        EXPECT_EQ(std::ssize(counted_targets(step)), step.weight);
      }
      EXPECT_EQ(weight, 98);
      EXPECT_EQ(samples, 100) << "a bad sample keeps its position";
    }
    EXPECT_EQ(told.size(), 4u);
    const auto worse = std::make_shared<NumberedDataset>(100);
    worse->broken = {3, 55, 56};
    Loader over(worse, options);
    EXPECT_THROW(for (int i = 0; i < 10; ++i) over.next_step(), Error);
  }
}

TEST(BadSamples, AreCountedAcrossAResume) {
  const auto dataset = std::make_shared<NumberedDataset>(100);
  dataset->broken = {3, 55, 56};
  LoaderOptions options = options_for(10, 10);
  options.shuffle = false;
  options.max_bad_fraction = 0.02;
  const auto unreadable = [&](int64_t samples, int64_t before) {  // reads to the middle of the next epoch
    Loader loader(dataset, options, {.from = {.samples = samples}, .unreadable = before});
    SampleUsage usage;
    for (int64_t step = samples / 10; step < 15; ++step) usage.add(loader.next_step().usage);
    return usage.unreadable;
  };
  EXPECT_EQ(unreadable(50, 0), 3) << "two of this epoch, one of the next";
  EXPECT_THROW(unreadable(50, 1), Error);
  EXPECT_EQ(unreadable(60, 2), 1) << "an epoch begins anew";
  dataset->broken = {55};
  options.partition.world_size = 2;
  options.partition.rank = 1;  // this rank may skip one sample, and sample 55 is its own
  EXPECT_THROW(unreadable(50, 1), Error);
  EXPECT_EQ(unreadable(50, 0), 1);
}

TEST(BadSamples, CoverOnlyDataErrors) {
  const auto dataset = std::make_shared<NumberedDataset>(10);
  dataset->broken = {4};
  dataset->broken_code = ExitCode::environment;
  LoaderOptions options = options_for(10, 10, 1);
  options.max_bad_fraction = 0.5;
  Loader loader(dataset, options);
  EXPECT_THROW(loader.next_step(), Error);
}

}  // namespace
}  // namespace gputrain::data

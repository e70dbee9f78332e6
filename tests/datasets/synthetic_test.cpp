#include <cmath>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/numbered_dataset.hpp"
#include "datasets/opened.hpp"

namespace gputrain::datasets {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::StartsWith;

TEST(Synthetic, RepeatsImagesAndVariesForValidation) {
  const std::string section = "{train: {format: synthetic, samples: 50}, val: {samples: 20}, image: {size: 8}}";
  const data::DatasetSplits first = open(section), second = open(section);
  EXPECT_EQ(first.train->describe(), "50 images 8x8x3, 10 classes, made up");
  EXPECT_EQ(first.val->size(), 20);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(read(*first.train, i), read(*second.train, i));
    EXPECT_NE(read(*first.train, i), read(*first.val, i));
    EXPECT_NE(read(*first.train, i), read(*first.train, i + 1));
  }
}

double distance(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(std::to_integer<int>(a[i]) - std::to_integer<int>(b[i]));
  return sum / static_cast<double>(a.size());
}

/// Mean distance between images of the same class, minus the mean distance between different classes.
double class_signal(const data::Dataset& dataset) {
  double same = 0, other = 0;
  int same_pairs = 0, other_pairs = 0;
  for (int64_t i = 0; i < 60; ++i)
    for (int64_t j = 0; j < i; ++j) {
      const Sample a = read(dataset, i), b = read(dataset, j);
      (a.target == b.target ? same : other) += distance(a.input, b.input);
      ++(a.target == b.target ? same_pairs : other_pairs);
    }
  return other / other_pairs - same / same_pairs;
}

TEST(Synthetic, ShowsClassOnlyInLearnableImages) {
  EXPECT_GT(class_signal(*open("{train: {format: synthetic}, image: {size: 16}}").train), 5);
  EXPECT_LT(std::abs(class_signal(*open("{train: {format: synthetic, learnable: false}, image: {size: 16}}").train)),
            2);
}

TEST(Synthetic, MakesTokensForLanguageModels) {
  for (const bool learnable : {true, false}) {
    const data::DatasetSplits datasets = open(
        std::string("{train: {format: synthetic, vocab_size: 100, learnable: ") + (learnable ? "true" : "false") + "}}",
        32);
    int follow = 0;
    for (int64_t i = 0; i < 50; ++i) {
      const Sample sample = read(*datasets.train, i);
      for (size_t t = 0; t < 32; ++t) {
        ASSERT_TRUE(sample.target[t] >= 0 && sample.target[t] < 100);
        ASSERT_EQ(sample.tokens()[t], t > 0 ? sample.target[t - 1] : sample.tokens()[0]);
        follow += sample.target[t] == (sample.tokens()[t] * 5 + 17) % 100;
      }
    }
    EXPECT_NEAR(follow / 1600.0, learnable ? 0.901 : 0.01, 0.03);
  }
}

TEST(DataSection, ListsItsFormats) {
  EXPECT_THAT(data::catalog().names(), IsSupersetOf({"idx", "imagefolder", "synthetic", "tar", "tokens"}));
}

TEST(DataSection, ReportsPartOfDataTrainedOn) {
  const data::DatasetSplits datasets =
      open("{train: {format: synthetic, samples: 50000, num_classes: 1}, val: {split: 0.4%}, image: {size: 8}}");
  EXPECT_THAT(datasets.train->describe(), StartsWith("49,800 of 50,000 images 8x8x3, 1 class,"));
}

TEST(DataSection, RefusesContradictoryOptions) {
  const auto refusal = [](const std::string& more) {
    return error_of([&more] { open("{train: {format: synthetic}" + more + "}"); }, ExitCode::usage);
  };
  EXPECT_THAT(refusal(", val: {split: 10%, path: x}"), HasSubstr("path and split exclude each other"));
  EXPECT_THAT(refusal(", val: {split: 60%}, test: {split: 50%}"), HasSubstr("leave nothing to train on"));
  EXPECT_THAT(refusal(", val: {split: 500}"), HasSubstr("split"));
  EXPECT_THAT(refusal(", image: {size: 8, augment: {random_resized_crop: [0.5, 0.1]}}"),
              HasSubstr("random_resized_crop"));
  EXPECT_THAT(refusal(", image: {size: 8, augment: {random_resized_crop: [0.1, 1], random_crop_padding: 2}}"),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal(", image: {augment: {random_resized_crop: [0.1, 1]}}"), HasSubstr("needs the size"));
  EXPECT_THAT(refusal(", image: {channels: 2}"), HasSubstr("1 (grey) or 3 (RGB)"));
  EXPECT_THAT(refusal(", image: {mean: [0.5]}"),
              HasSubstr("data.image.mean: mean and std must be set together; missing: std"));
  EXPECT_THAT(refusal(", image: {channels: 3, mean: [0.5], std: [0.5]}"), HasSubstr("one value for each channel"));
}

TEST(DataSection, RefusesSplitsWithoutASample) {
  const auto refusal = [](const std::string& more) {
    return error_of([&more] { open("{train: {format: synthetic, samples: 64}" + more + "}"); }, ExitCode::data);
  };
  EXPECT_THAT(refusal(", val: {split: 0.1%}"),
              HasSubstr("data.val.split: 0.1% of the training data is less than one sample; it has 64 images"));
  EXPECT_THAT(refusal(", test: {split: 0.1%}"), HasSubstr("or separate data: data.test.path"));
  EXPECT_THAT(refusal(", val: {split: 99.9%}"), HasSubstr("data.train: 0.1% of the training data"));
}

TEST(AutomaticWorkers, AreAsManyAsHelp) {
  const data::DatasetSplits images = open("{train: {format: synthetic}}");
  EXPECT_EQ(data::automatic_workers(*images.train, at::kCPU, 8), 0);
  EXPECT_EQ(data::automatic_workers(*images.train, at::kCUDA, 8), 1) << "copying needs no more";
  data::NumberedDataset decoded(10);
  decoded.cheap = false;
  for (const auto& [cpus, workers] : {std::pair{1, 1}, {8, 7}, {200, 32}})
    EXPECT_EQ(data::automatic_workers(decoded, at::kCUDA, cpus), workers);
}

}  // namespace
}  // namespace gputrain::datasets

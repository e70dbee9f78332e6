#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include "data/loaded_steps.hpp"
#include "data/numbered_dataset.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

void expect_equal_steps(const StepData& a, const StepData& b) {
  ASSERT_EQ(a.micro_batches.size(), b.micro_batches.size());
  EXPECT_EQ(a.weight, b.weight);
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.ends_epoch, b.ends_epoch);
  for (size_t i = 0; i < a.micro_batches.size(); ++i) {
    EXPECT_TRUE(at::equal(a.micro_batches[i].input(), b.micro_batches[i].input()));
    EXPECT_TRUE(at::equal(a.micro_batches[i].tensor(kTarget), b.micro_batches[i].tensor(kTarget)));
    EXPECT_EQ(a.micro_batches[i].weight, b.micro_batches[i].weight);
  }
}

TEST(Loader, GivesSameBatchesForAnyWorkerCount) {
  for (const bool cheap : {true, false}) {
    const auto dataset = std::make_shared<NumberedDataset>(1003);
    dataset->cheap = cheap;
    Loader none(dataset, options_for(64, 16, 0)), one(dataset, options_for(64, 16, 1)),
        four(dataset, options_for(64, 16, 4));
    for (int step = 0; step < 40; ++step) {
      const StepData reference = none.next_step();
      expect_equal_steps(reference, one.next_step());
      expect_equal_steps(reference, four.next_step());
    }
  }
}

TEST(Loader, CountsEverySampleOnceAnEpoch) {
  const auto dataset = std::make_shared<NumberedDataset>(101);
  for (const bool shuffle : {true, false}) {
    LoaderOptions options = options_for(16, 5, 2);
    options.shuffle = shuffle;
    Loader loader(dataset, options);
    EXPECT_EQ(loader.steps_per_epoch(), 7);
    SampleUsage usage;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> seen;
      int64_t samples = 0, weight = 0;
      for (int64_t i = 0; i < loader.steps_per_epoch(); ++i) {
        const StepData step = loader.next_step();
        EXPECT_EQ(step.epoch, epoch);
        EXPECT_EQ(step.ends_epoch, i == 6);
        samples += step.samples;
        weight += step.weight;
        usage.add(step.usage);
        const std::vector<int64_t> targets = counted_targets(step);
        seen.insert(seen.end(), targets.begin(), targets.end());
      }
      EXPECT_EQ(samples, 101);
      EXPECT_EQ(weight, 101);
      EXPECT_EQ(std::is_sorted(seen.begin(), seen.end()), !shuffle);
      std::sort(seen.begin(), seen.end());
      for (int64_t i = 0; i < 101; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i);
    }
    const OrderFacts order{.samples = 101, .global_batch = 16, .seed = options.seed, .shuffle = shuffle};
    EXPECT_EQ(usage, expected_usage(order, 0, 21));
  }
}

TEST(Loader, RepeatsSamplesInTheirOrderOnAnyRanksAndAfterAResume) {
  const auto dataset = std::make_shared<NumberedDataset>(100);
  LoaderOptions options = options_for(16, 4, 2);
  options.repeats = 3;
  Loader loader(dataset, options);
  EXPECT_EQ(loader.steps_per_epoch(), 7) << "an epoch is as long as without repeats";
  std::vector<int64_t> seen;
  SampleUsage usage;
  for (int64_t i = 0; i < 7; ++i) {
    const StepData step = loader.next_step();
    usage.add(step.usage);
    const std::vector<int64_t> targets = counted_targets(step);
    seen.insert(seen.end(), targets.begin(), targets.end());
  }
  const Permutation order = order_of_epoch(options.seed, 0, 100);
  ASSERT_EQ(seen.size(), 100U);
  for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], order(i / 3));
  const OrderFacts facts{.samples = 100, .global_batch = 16, .seed = options.seed, .repeats = 3};
  EXPECT_EQ(usage, expected_usage(facts, 0, 7));

  std::vector<int64_t> resumed;
  LoaderState middle{.from = position_after(facts, 3)};
  std::vector<std::unique_ptr<Loader>> ranks;
  options.partition.world_size = 2;
  for (options.partition.rank = 0; options.partition.rank < 2; ++options.partition.rank)
    ranks.push_back(std::make_unique<Loader>(dataset, options, middle));
  for (int64_t i = 3; i < 7; ++i)
    for (const auto& rank : ranks)
      for (const int64_t target : counted_targets(rank->next_step())) resumed.push_back(target);
  std::vector<int64_t> rest(seen.begin() + 48, seen.end());
  std::ranges::sort(rest), std::ranges::sort(resumed);
  EXPECT_EQ(resumed, rest);
  options.augment = false;
  options.partition = {.global_batch = 100, .micro_batch = 100};
  std::vector<int64_t> evaluated = counted_targets(Loader(dataset, options).next_step());
  std::ranges::sort(evaluated);
  EXPECT_EQ(std::ranges::unique(evaluated).begin(), evaluated.end()) << "an evaluation reads each once";
}

TEST(Loader, PadsLastStepWithUncountedSamples) {
  const auto dataset = std::make_shared<NumberedDataset>(10);
  Loader loader(dataset, options_for(8, 4));
  loader.next_step();
  const StepData last = loader.next_step();
  EXPECT_EQ(last.samples, 2);
  ASSERT_EQ(last.micro_batches.size(), 2u);
  for (const Batch& batch : last.micro_batches) EXPECT_EQ(batch.input().size(0), 4);
  EXPECT_EQ(last.micro_batches[1].weight, 0);
  // Padding rows hold real samples, so that batch norm sees data, not zeros.
  std::vector<int64_t> numbers = values(last.micro_batches[1].input().select(1, 0));
  EXPECT_EQ(std::set<int64_t>(numbers.begin(), numbers.end()).size(), 4u);
}

TEST(Loader, ReadsNoPaddingInEvaluation) {
  const auto dataset = std::make_shared<NumberedDataset>(10);
  LoaderOptions options = options_for(8, 8);
  options.augment = options.shuffle = false;
  Loader loader(dataset, options);
  loader.next_step();
  EXPECT_EQ(loader.next_step().samples, 2);
  EXPECT_EQ(dataset->reads, 10);
}

TEST(Loader, DropsLastPartialStepWhenAsked) {
  const auto dataset = std::make_shared<NumberedDataset>(10);
  LoaderOptions options = options_for(4, 4);
  options.drop_last = true;
  Loader loader(dataset, options);
  EXPECT_EQ(loader.steps_per_epoch(), 2);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(loader.next_step().epoch, i / 2);
  options.partition.global_batch = 11;
  EXPECT_THROW(Loader(dataset, options), Error);
}

std::vector<std::unique_ptr<Loader>> loaders_of(const std::shared_ptr<NumberedDataset>& dataset, LoaderOptions options,
                                                int world) {
  std::vector<std::unique_ptr<Loader>> ranks;
  options.partition.world_size = world;
  for (options.partition.rank = 0; options.partition.rank < world; ++options.partition.rank) {
    options.num_workers = options.partition.rank % 2;
    ranks.push_back(std::make_unique<Loader>(dataset, options));
  }
  return ranks;
}

/// The counted samples of the ranks' next step, per micro-batch in order of ranks; also stores the shapes.
std::vector<std::vector<int64_t>> next_together(const std::vector<std::unique_ptr<Loader>>& ranks,
                                                std::vector<std::vector<int64_t>>& shapes) {
  std::vector<std::vector<int64_t>> together(static_cast<size_t>(ranks.front()->micro_batches_per_step()));
  shapes.clear();
  for (const auto& rank : ranks) {
    const StepData data = rank->next_step();
    shapes.emplace_back();
    for (size_t i = 0; i < together.size(); ++i) {
      const Batch& batch = data.micro_batches.at(i);
      shapes.back().push_back(batch.input().size(0));
      for (const int64_t target : values(batch.tensor(kTarget)))
        if (target != kIgnoreIndex) together[i].push_back(target);
    }
  }
  return together;
}

std::vector<int64_t> joined(const std::vector<std::vector<int64_t>>& parts) {
  std::vector<int64_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Positions do not depend on the number of ranks: together, ranks take what one takes, even for uneven division.
TEST(Loader, SharesAStepBetweenRanks) {
  const auto dataset = std::make_shared<NumberedDataset>(50);
  for (const int world : {1, 2, 3, 5}) {
    Loader alone(dataset, options_for(13, 4));
    const auto ranks = loaders_of(dataset, options_for(13, 4), world);
    for (int step = 0; step < 9; ++step) {
      std::vector<std::vector<int64_t>> shapes;
      const auto together = next_together(ranks, shapes);
      for (const auto& shape : shapes) {
        EXPECT_EQ(shape, shapes.front()) << "every rank computes the same shapes";
        EXPECT_LE(*std::max_element(shape.begin(), shape.end()), 4);
      }
      EXPECT_EQ(joined(together), counted_targets(alone.next_step())) << world << " ranks, step " << step;
    }
  }
}

// Then batch norm over all ranks sees the same batches.
TEST(Loader, KeepsMicroBatchesOnAnyRankCount) {
  const auto dataset = std::make_shared<NumberedDataset>(50);
  std::vector<std::vector<int64_t>> shapes;
  for (const int world : {2, 4}) {
    const auto alone = loaders_of(dataset, options_for(16, 8), 1),
               ranks = loaders_of(dataset, options_for(16, 8 / world), world);
    for (int step = 0; step < 9; ++step) EXPECT_EQ(next_together(ranks, shapes), next_together(alone, shapes));
  }
}

/// Sample i has (7 i mod 30) + 1 entries.
struct UnevenDataset final : NumberedDataset {
  using NumberedDataset::NumberedDataset;
  int64_t length(int64_t index) const override { return index * 7 % 30 + 1; }
};

TEST(Loader, PutsSamplesOfLikeLengthTogether) {
  const auto dataset = std::make_shared<UnevenDataset>(50);
  for (const int ranks : {1, 2, 3}) {
    std::vector<int64_t> seen;
    for (int64_t step = 0; step < 5; ++step) {
      std::vector<std::vector<int64_t>> parts(6);  // of all ranks together
      for (int rank = 0; rank < ranks; ++rank) {
        LoaderOptions options = options_for(12, ranks == 1 ? 2 : 1);
        options.partition.rank = rank;
        options.partition.world_size = ranks;
        Loader loader(dataset, options, {.from = {.epoch = 0, .samples = step * 12}});
        const StepData data = loader.next_step();
        for (size_t i = 0; i < data.micro_batches.size(); ++i)
          for (const int64_t target : values(data.micro_batches[i].tensor(kTarget)))
            if (target != kIgnoreIndex) parts[i].push_back(target);
      }
      int64_t shortest = 100;
      for (const auto& part : parts) {
        for (const int64_t sample : part) EXPECT_LE(dataset->length(sample), shortest);
        for (const int64_t sample : part) shortest = std::min(shortest, dataset->length(sample));
        seen.insert(seen.end(), part.begin(), part.end());
      }
    }
    std::ranges::sort(seen);
    std::vector<int64_t> all(50);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all) << ranks;
  }
}

TEST(Loader, CutsPaddingDownToNoRowsWhenAsked) {
  const auto dataset = std::make_shared<NumberedDataset>(11);
  LoaderOptions options = options_for(8, 2);
  options.pads = false;
  const auto ranks = loaders_of(dataset, options, 2);
  std::vector<std::vector<int64_t>> shapes;
  next_together(ranks, shapes);
  EXPECT_EQ(shapes, (std::vector<std::vector<int64_t>>{{2, 2}, {2, 2}}));
  const StepData first = ranks[0]->next_step(), second = ranks[1]->next_step();
  const Preprocess preprocess(*dataset, {});
  std::vector<int64_t> rows, on_all_ranks;
  for (const StepData* data : {&first, &second}) {
    for (const Batch& batch : data->micro_batches) {
      rows.push_back(batch.input().size(0));
      on_all_ranks.push_back(batch.samples_on_all_ranks);
      EXPECT_EQ(preprocess(batch).input().size(0), batch.input().size(0));
    }
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{2, 0, 1, 0}));
  EXPECT_EQ(on_all_ranks, (std::vector<int64_t>{3, 0, 3, 0}));
}

TEST(Loader, ResumesExactlyOnAnyRankCount) {
  const auto dataset = std::make_shared<NumberedDataset>(77);
  Loader whole(dataset, options_for(10, 3, 2));
  for (int i = 0; i < 13; ++i) whole.next_step();
  Loader resumed(dataset, options_for(10, 5, 1), {.from = {.epoch = 1, .samples = 50}});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(counted_targets(whole.next_step()), counted_targets(resumed.next_step()));
}

/// The samples that training uses in `steps` steps of this size from `position` on, which moves past them.
std::vector<int64_t> used_from(Position& position, int64_t global_batch, bool drop_last, int64_t steps) {
  LoaderOptions options = options_for(global_batch, 3, 1);
  options.drop_last = drop_last;
  Loader loader(std::make_shared<NumberedDataset>(37), options, {.from = position});
  std::vector<int64_t> used;
  for (int64_t i = 0; i < steps; ++i) {
    const StepData step = loader.next_step();
    const auto targets = counted_targets(step);
    used.insert(used.end(), targets.begin(), targets.end());
    if (step.epoch > position.epoch) position = {.epoch = step.epoch};
    position.samples += step.samples;
    if (step.ends_epoch) position = {.epoch = step.epoch + 1};
  }
  return used;
}

TEST(Loader, GoesOnWithOtherStepsWithinAnEpoch) {
  Position position, whole;
  const auto expected = used_from(whole, 37, false, 2);  // each sample of two epochs
  auto used = used_from(position, 8, false, 2);
  for (const auto& [global_batch, steps, after] :
       {std::tuple{16, 1, Position{0, 32}}, {3, 2, {1, 0}}, {16, 1, {1, 16}}, {5, 5, {2, 0}}}) {
    const auto more = used_from(position, global_batch, false, steps);
    used.insert(used.end(), more.begin(), more.end());
    EXPECT_EQ(position, after);
  }
  EXPECT_EQ(used, expected);
}

TEST(Loader, DropsPartialStepOfAnEpochBegunWithOthers) {
  Position position{.epoch = 0, .samples = 8};
  EXPECT_EQ(used_from(position, 16, true, 1).size(), 16U);
  EXPECT_EQ(position, (Position{1, 0}));  // 13 samples are left out
  position = {.epoch = 1, .samples = 24};
  used_from(position, 16, true, 1);  // no step fits
  EXPECT_EQ(position, (Position{2, 16}));
}

TEST(Loader, ShufflesEachEpochAndPassesItToReads) {
  const auto dataset = std::make_shared<NumberedDataset>(64);
  Loader loader(dataset, options_for(64, 64));
  const StepData first = loader.next_step(), second = loader.next_step();
  EXPECT_NE(counted_targets(first), counted_targets(second));
  EXPECT_EQ(values(second.micro_batches[0].input().select(1, 1)), std::vector<int64_t>(64, 1));
  EXPECT_EQ(values(second.micro_batches[0].input().select(1, 2)), std::vector<int64_t>(64, 1));
}

TEST(Loader, RefusesBatchThatLeavesRanksEmpty) {
  LoaderOptions options = options_for(2, 2);
  options.partition.world_size = 3;
  EXPECT_THROW(Loader(std::make_shared<NumberedDataset>(10), options), Error);
  EXPECT_THROW(Loader(std::make_shared<NumberedDataset>(0), options_for(2, 2)), Error);
}

}  // namespace
}  // namespace gputrain::data

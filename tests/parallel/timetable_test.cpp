#include "gputrain/parallel/timetable.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace gputrain::parallel {
namespace {

using ::testing::ElementsAre;

/// "F0 F1 B0": directions and micro-batches; with several parts, "F0.1" is that of the second part.
std::string text_of(const PipelineShape& shape, int64_t stage) {
  std::string text;
  for (const Pass& pass : passes_of(shape, stage)) {
    text += (text.empty() ? "" : " ") + std::string(pass.is_forward ? "F" : "B") + std::to_string(pass.micro_batch);
    if (shape.parts > 1) text += "." + std::to_string(pass.part);
  }
  return text;
}

TEST(Timetable, AlternatesForwardAndBackward) {
  const PipelineShape shape{.stages = 3, .micro_batches = 4};
  EXPECT_EQ(text_of(shape, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text_of(shape, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text_of(shape, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(text_of({.stages = 4, .micro_batches = 1}, 0), "F0 B0");
}

// As figure 4 of the paper: two micro-batches go through the first part of each stage, then through the second.
TEST(Timetable, TakesPartsInTurn) {
  const PipelineShape shape{.stages = 2, .parts = 2, .micro_batches = 4};
  EXPECT_EQ(text_of(shape, 0), "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(text_of(shape, 1), "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST(Timetable, RunsEveryPassOnceAndHoldsFewMicroBatches) {
  for (const auto& [stages, parts, micro_batches] :
       {std::tuple(2, 1, 1), {2, 1, 7}, {4, 1, 3}, {4, 1, 16}, {2, 2, 2}, {3, 2, 9}, {4, 3, 8}, {8, 2, 16}}) {
    const PipelineShape shape{.stages = stages, .parts = parts, .micro_batches = micro_batches};
    for (int64_t stage = 0; stage < stages; ++stage) {
      std::set<std::tuple<bool, int64_t, int64_t>> seen;
      std::map<int64_t, int64_t> last;  // by part: the last micro-batch that went back
      int64_t held = 0, most = 0;
      for (const Pass& pass : passes_of(shape, stage)) {
        EXPECT_TRUE(seen.emplace(pass.is_forward, pass.part, pass.micro_batch).second);
        held += pass.is_forward ? 1 : -1;
        most = std::max(most, held);
        if (pass.is_forward) continue;
        EXPECT_TRUE(seen.contains({true, pass.part, pass.micro_batch}));
        EXPECT_GE(pass.micro_batch, last[pass.part]);
        last[pass.part] = pass.micro_batch;
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(2 * parts * micro_batches));
      EXPECT_EQ(held, 0);
      EXPECT_EQ(most, most_in_flight(shape, stage));
    }
    timed_passes(shape, PassTimes(static_cast<size_t>(stages * parts), 1.0));  // ends
  }
}

// A link carries what its ranks send and read in one order.
TEST(Timetable, NeighboursAgreeOnTheOrder) {
  for (const auto& [stages, parts, micro_batches] : {std::tuple(2, 1, 5), {4, 1, 6}, {2, 2, 4}, {4, 3, 8}, {3, 2, 6}}) {
    const PipelineShape shape{.stages = stages, .parts = parts, .micro_batches = micro_batches};
    using Message = std::pair<int64_t, int64_t>;  // part of the model whose output it is, micro-batch
    const int64_t all = shape.stages * shape.parts;
    for (int64_t stage = 0; stage < stages; ++stage) {
      for (const bool is_forward : {true, false}) {
        std::vector<Message> sent, read;
        for (const Pass& pass : passes_of(shape, stage)) {
          const int64_t part = pass.part * stages + stage;
          if (pass.is_forward == is_forward && part != (is_forward ? all - 1 : 0))
            sent.emplace_back(part, pass.micro_batch);
        }
        const int64_t reader = (stage + (is_forward ? 1 : stages - 1)) % stages;
        for (const Pass& pass : passes_of(shape, reader)) {
          const int64_t from = pass.part * stages + reader + (is_forward ? -1 : 1);
          if (pass.is_forward == is_forward && from >= 0 && from < all) read.emplace_back(from, pass.micro_batch);
        }
        EXPECT_EQ(sent, read) << stages << "x" << parts << " stage " << stage << (is_forward ? " on" : " back");
      }
    }
  }
}

// The formulas of the papers: (p - 1) / (m + p - 1), and with v parts (p - 1) / (v m + p - 1).
TEST(Timetable, WaitsAsThePapersSay) {
  const auto waits = [](int64_t stages, int64_t parts, int64_t micro_batches) {
    const PipelineShape shape{.stages = stages, .parts = parts, .micro_batches = micro_batches};
    return bubble_of(timed_passes(shape, PassTimes(static_cast<size_t>(stages * parts), 1.0)));
  };
  EXPECT_NEAR(waits(4, 1, 8), 3.0 / 11, 1e-12);
  EXPECT_NEAR(waits(2, 1, 1), 1.0 / 2, 1e-12);
  EXPECT_NEAR(waits(4, 2, 8), 3.0 / 19, 1e-12);
  EXPECT_NEAR(waits(8, 4, 16), 7.0 / 71, 1e-12);
}

TEST(UnitCuts, MakeTheMostExpensivePartCheap) {
  EXPECT_THAT(cut_units({0, 1, 1, 1, 1, 2}, 2), ElementsAre(0, 4, 6));
  EXPECT_THAT(cut_units({0, 1, 1, 1, 1, 4}, 2), ElementsAre(0, 5, 6));
  EXPECT_THAT(cut_units({0, 1, 1, 1, 1}, 4), ElementsAre(0, 2, 3, 4, 5));
  EXPECT_THAT(cut_units({0, 3, 1, 1, 1, 1, 1, 1, 3}, 4), ElementsAre(0, 2, 5, 8, 9));
  EXPECT_THAT(cut_units({0, 1, 1}, 1), ElementsAre(0, 3));
}

}  // namespace
}  // namespace gputrain::parallel

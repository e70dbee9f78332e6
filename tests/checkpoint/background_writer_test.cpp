#include "gputrain/checkpoint/background_writer.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

class BackgroundWriterTest : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  Snapshot snapshot(int64_t step) const {
    return {.step = step, .files = {{"model", {{"w", weights_}}}}, .state = "{}"};
  }
  /// The value saved at a step; -1 if there is no checkpoint of that step.
  double saved_at(int64_t step) const {
    const auto found = CheckpointStore(folder_).find_newest().newest;
    if (!found || found->step() != step) return -1;
    return found->part("model").tensor("w").mean().item<double>();
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_writer_" + std::to_string(::getpid()));
  at::Tensor weights_ = at::full({1 << 20}, 1.0);
};

TEST_F(BackgroundWriterTest, SavesValuesHeldWhenAsked) {
  BackgroundWriter writer{CheckpointStore(folder_)};
  for (const int64_t step : {1, 2, 3}) {
    writer.begin(snapshot(step));
    weights_.fill_(100.0 * static_cast<double>(step));  // training continues
  }
  writer.wait();
  EXPECT_EQ(saved_at(3), 200);
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "step-00000003") << "only a save that is read back is pointed at";
  const auto results = writer.take_results();
  ASSERT_EQ(results.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(results[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_FALSE(results[i].failure);
    EXPECT_EQ(results[i].bytes, weights_.nbytes());
    EXPECT_GT(results[i].seconds, 0);
  }
  EXPECT_TRUE(writer.take_results().empty());
}

TEST_F(BackgroundWriterTest, CopiesSteadyTensorsInBackground) {
  BackgroundWriter writer{CheckpointStore(folder_)};
  const at::Tensor moving = at::full({3}, 1.0);
  Snapshot live = snapshot(1);
  live.files["model"].emplace_back("moving", moving);
  for (const int64_t step : {1, 2, 3}) {
    weights_.fill_(static_cast<double>(step));
    moving.fill_(static_cast<double>(step));
    live.step = step;
    writer.begin(live, {weights_});
    moving.fill_(-1);  // begin() has copied it
    writer.finish_copy();
    weights_.fill_(-1);
  }
  writer.wait();
  EXPECT_EQ(saved_at(3), 3);
  EXPECT_EQ(CheckpointStore(folder_).find_newest().newest->part("model").tensor("moving").sum().item<float>(), 9);
}

TEST_F(BackgroundWriterTest, FinishesNothingWhenNothingWasBegun) {
  BackgroundWriter writer{CheckpointStore(folder_)};
  writer.finish_copy();
  writer.begin(snapshot(1), {weights_});
  writer.wait();
  writer.finish_copy();
  EXPECT_EQ(saved_at(1), 1);
}

TEST_F(BackgroundWriterTest, FinishesPendingSaveOnDestruction) {
  { BackgroundWriter(CheckpointStore(folder_)).begin(snapshot(7)); }
  EXPECT_EQ(saved_at(7), 1);
}

TEST_F(BackgroundWriterTest, SavesInCallersThreadAfterPendingSave) {
  BackgroundWriter writer{CheckpointStore(folder_)};
  writer.begin(snapshot(1));
  weights_.fill_(5);
  EXPECT_FALSE(writer.save(snapshot(2)).failure);
  EXPECT_EQ(saved_at(2), 5);
  EXPECT_EQ(writer.take_results().size(), 1U);
}

TEST_F(BackgroundWriterTest, CountsMemoryRefusedForCopyAsFailedSave) {
  BackgroundWriter writer{CheckpointStore(folder_)};
  Snapshot large = snapshot(1);
  large.files["model"].emplace_back("more than there is", at::full({1}, 1.0).expand({int64_t{1} << 45}));
  writer.begin(large, {weights_});
  writer.finish_copy();
  const auto results = writer.take_results();
  ASSERT_EQ(results.size(), 1U);
  ASSERT_TRUE(results[0].failure);
  EXPECT_EQ(results[0].failure->code(), ExitCode::checkpoint);
  EXPECT_NE(results[0].failure->parts().what.find("no memory"), std::string::npos) << results[0].failure->what();
  weights_.fill_(2);
  writer.begin(snapshot(2), {weights_});
  writer.finish_copy();
  writer.wait();
  EXPECT_EQ(saved_at(2), 2);
}

TEST_F(BackgroundWriterTest, TellsRankZeroThatFilesWillNotCome) {
  CheckpointStore store(folder_);
  Snapshot of_zero = snapshot(1);
  of_zero.awaited = {file_name("optimizer", 1, 2)};
  of_zero.patience_seconds = 600;
  store.prepare(of_zero);
  BackgroundWriter writer{store};
  const NamedTensors large{{"more than there is", at::full({1}, 1.0).expand({int64_t{1} << 45})}};
  writer.begin(
      {.step = 1, .shards = {{.part = "optimizer", .rank = 1, .ranks = 2, .tensors = large, .slices = {}}}, .rank = 1});
  EXPECT_TRUE(writer.take_results().at(0).failure);
  try {
    store.write(of_zero);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("could not write it: "), std::string::npos) << error.what();
  }
}

TEST_F(BackgroundWriterTest, ReportsFailureInsteadOfThrowing) {
  fs::create_directories(folder_);
  const fs::path file = folder_ / "a file";
  std::ofstream(file) << "in the way";
  BackgroundWriter writer{CheckpointStore(file / "ckpt")};
  writer.begin(snapshot(1));
  EXPECT_TRUE(writer.save(snapshot(2)).failure);
  const auto results = writer.take_results();
  ASSERT_EQ(results.size(), 1U);
  ASSERT_TRUE(results[0].failure);
  EXPECT_EQ(results[0].failure->code(), ExitCode::checkpoint);
}

}  // namespace
}  // namespace gputrain::checkpoint

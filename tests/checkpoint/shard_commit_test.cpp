// Several ranks, threads here, write one checkpoint into one folder.
#include <filesystem>
#include <string>
#include <thread>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "gputrain/checkpoint/store.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int64_t kRanks = 3, kItems = 5;

Snapshot snapshot_of(int64_t rank) {
  Shard shard{.part = "optimizer", .rank = rank, .ranks = kRanks, .tensors = {}, .slices = {}};
  shard.tensors.emplace_back("v", at::full({kItems}, static_cast<double>(rank)));
  shard.slices["v"] = {.shape = {kRanks, kItems}, .begin = rank * kItems};
  Snapshot snapshot{.step = 4, .shards = {std::move(shard)}, .state = "{}", .rank = rank, .patience_seconds = 30};
  if (rank == 0) snapshot.awaited = {file_name("optimizer", 1, kRanks), file_name("optimizer", 2, kRanks)};
  return snapshot;
}

class JointSaveTest : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  std::string failure_of(const Snapshot& snapshot) {
    try {
      CheckpointStore(folder_).write(snapshot);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
      return error.what();
    }
    return "written";
  }
  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_together_" + std::to_string(::getpid()));
};

TEST_F(JointSaveTest, WritesOneCheckpointInAnyRankOrder) {
  CheckpointStore store(folder_);
  store.prepare(snapshot_of(0));
  std::thread late([&] { CheckpointStore(folder_).write(snapshot_of(1)); });
  std::thread other([&] { CheckpointStore(folder_).write(snapshot_of(2)); });
  store.write(snapshot_of(0));
  late.join();
  other.join();
  store.confirm(folder_ / folder_name(4));
  const Checkpoint saved = *store.find_newest().newest;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(saved.part("optimizer").tensor("v").select(0, rank).sum().item<double>(),
              static_cast<double>(rank * kItems));
  }
  for (const auto& entry : fs::directory_iterator(saved.folder()))
    EXPECT_NE(entry.path().extension(), ".written") << entry;
}

TEST_F(JointSaveTest, EndsForAllWhenOneRankCannotWrite) {
  CheckpointStore store(folder_);
  store.save({.step = 3, .state = "{}"});
  store.prepare(snapshot_of(0));
  const fs::path partial = folder_ / "step-00000004.partial";
  fs::create_directory(partial / (file_name("optimizer", 2, kRanks) + ".partial"));  // blocks rank 2's temporary name
  store.write(snapshot_of(1));
  EXPECT_THAT(failure_of(snapshot_of(2)), HasSubstr("optimizer-00003-of-00003.safetensors"));
  EXPECT_THAT(failure_of(snapshot_of(0)),
              HasSubstr("optimizer-00003-of-00003.safetensors: its rank could not write it"));
  EXPECT_FALSE(fs::exists(partial));
  EXPECT_EQ(store.find_newest().newest->step(), 3);
}

TEST_F(JointSaveTest, NamesRankThatIsLate) {
  CheckpointStore store(folder_);
  store.prepare(snapshot_of(0));
  store.write(snapshot_of(2));
  Snapshot impatient = snapshot_of(0);
  impatient.patience_seconds = 0.1;
  EXPECT_THAT(failure_of(impatient),
              HasSubstr("optimizer-00002-of-00003.safetensors: its rank has not written it in time"));
  EXPECT_FALSE(store.find_newest().newest);
}

}  // namespace
}  // namespace gputrain::checkpoint

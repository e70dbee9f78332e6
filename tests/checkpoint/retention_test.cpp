// Which checkpoints the retention keeps.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store_fixture.hpp"

namespace gputrain::checkpoint {
namespace {

using ::testing::ElementsAre;

using RetentionTest = StoreFixture;

TEST_F(RetentionTest, KeepsOnlyTheLastFew) {
  CheckpointStore store(folder_, {.keep_last = 2});
  for (const int64_t step : {1, 2, 3, 4}) save(store, step);
  EXPECT_THAT(names(), ElementsAre("step-00000003", "step-00000004"));
}

TEST_F(RetentionTest, DoesNotCountDamagedCheckpoints) {
  CheckpointStore store(folder_, {.keep_last = 2});
  save(store, 1);
  save(store, 2);
  fs::remove(folder_ / "step-00000002" / "model.safetensors");
  save(store, 3);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002", "step-00000003"));
  save(store, 4);
  EXPECT_THAT(names(), ElementsAre("step-00000003", "step-00000004"));
}

TEST_F(RetentionTest, KeepsBestAndMultiplesBesideTheLast) {
  CheckpointStore store(folder_, {.keep_last = 1, .keep_best = 2, .keep_every = 4});
  const std::map<int64_t, double> losses{{1, 0.5}, {2, 0.1}, {3, 0.9}, {4, 0.8}, {5, 0.3}, {6, 0.7}, {7, 0.6}};
  for (const auto& [step, loss] : losses) save_scored(store, step, loss);
  EXPECT_THAT(names(), ElementsAre("step-00000002", "step-00000004", "step-00000005", "step-00000007"));
  EXPECT_EQ(fs::read_symlink(folder_ / "best"), "step-00000002");
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "step-00000007");
}

/// Makes folders of links, as `cp -rL` does.
void follow_links(const fs::path& folder) {
  for (const char* name : {"latest", "best"}) {
    const fs::path target = folder / fs::read_symlink(folder / name);
    fs::remove(folder / name);
    fs::copy(target, folder / name, fs::copy_options::recursive);
  }
}

TEST_F(RetentionTest, MakesLinksOfCopiesOfCheckpoints) {
  CheckpointStore(folder_, {.keep_last = 1, .keep_best = 1})
      .save({.step = 1, .state = "{}", .score = Score{"val/loss", 2}});
  follow_links(folder_);
  CheckpointStore store(folder_, {.keep_last = 1, .keep_best = 1});
  save_scored(store, 2, 1);
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "step-00000002");
  EXPECT_EQ(fs::read_symlink(folder_ / "best"), "step-00000002");
  EXPECT_THAT(names(), ElementsAre("step-00000002"));
}

TEST_F(RetentionTest, LeavesAnotherFolderInThePlaceOfALink) {
  fs::create_directories(folder_ / "latest");
  std::ofstream(folder_ / "latest" / "mine") << "x";
  ::testing::internal::CaptureStderr();
  CheckpointStore store(folder_, {.keep_last = 1});
  save(store, 1);
  save(store, 2);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(fs::exists(folder_ / "latest" / "mine"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder_ / "latest.partial")));
  EXPECT_NE(told.find("latest is no link and no copy of a checkpoint"), std::string::npos) << told;
  EXPECT_EQ(told.find("no copy"), told.rfind("no copy")) << "is told once";
}

TEST_F(RetentionTest, KeepsWhatWasSavedForGood) {
  CheckpointStore store(folder_, {.keep_last = 1, .keep_every = 4, .by_mark = true});
  save(store, 3);
  save(store, 4);  // of an older program
  for (const auto& [step, for_good] : std::map<int64_t, bool>{{5, true}, {8, false}, {10, true}, {11, false}})
    store.save({.step = step, .state = "{}", .for_good = for_good});
  EXPECT_THAT(names(), ElementsAre("step-00000004", "step-00000005", "step-00000010", "step-00000011"));
}

TEST_F(RetentionTest, ComparesByMetricDirectionAndName) {
  CheckpointStore store(folder_, {.keep_last = 1, .keep_best = 1, .smaller_is_better = false});
  store.save({.step = 1, .state = "{}", .score = Score{"val/loss", 1000}});
  for (const auto& [step, accuracy] : std::map<int64_t, double>{{2, 70}, {3, 90}, {4, 80}}) {
    store.save({.step = step, .state = "{}", .score = Score{"val/top1", accuracy}});
  }
  save(store, 5);  // without a score
  EXPECT_THAT(names(), ElementsAre("step-00000003", "step-00000005"));
}

TEST_F(RetentionTest, TakesTheEarlierOfEqualsForTheBest) {
  CheckpointStore store(folder_, {.keep_last = 1, .keep_best = 1});
  for (const int64_t step : {1, 2, 3}) save_scored(store, step, 0.5);
  EXPECT_EQ(fs::read_symlink(folder_ / "best"), "step-00000001");
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000003"));
}

TEST_F(RetentionTest, ListsWhatPruningWouldRemove) {
  CheckpointStore all(folder_, {.keep_last = 9});
  for (const int64_t step : {1, 2, 3}) save(all, step);
  const CheckpointStore store(folder_, {.keep_last = 1});
  EXPECT_THAT(store.prune(store.find_newest(), /*only_tell=*/true),
              ElementsAre(folder_ / "step-00000002", folder_ / "step-00000001"));
  EXPECT_EQ(names().size(), 3U);
  store.prune(store.find_newest());
  EXPECT_THAT(names(), ElementsAre("step-00000003"));
}

TEST_F(RetentionTest, LinksBestOfThoseLeftByPruning) {
  CheckpointStore all(folder_, {.keep_last = 9});
  for (const auto& [step, loss] : std::map<int64_t, double>{{1, 0.1}, {2, 0.5}, {3, 0.4}}) save_scored(all, step, loss);
  EXPECT_EQ(fs::read_symlink(folder_ / "best"), "step-00000001");
  const CheckpointStore store(folder_, {.keep_last = 1});
  store.prune(store.find_newest());
  EXPECT_EQ(fs::read_symlink(folder_ / "best"), "step-00000003");
}

TEST_F(RetentionTest, KeepsOldOneWhenNewOneReadsBackDamaged) {
  CheckpointStore store(folder_, {.keep_last = 1});
  save(store, 1);
  const fs::path written = store.write({.step = 2, .files = {{"model", {{"w", at::ones({3})}}}}, .state = "{}"});
  const fs::path model = written / "model.safetensors";
  std::string content = content_of(model);
  content.back() ^= 1;
  overwrite(model, content);
  EXPECT_THROW(store.confirm(written), Damage);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(RetentionTest, CountsAStepThatWasSavedAgainOnce) {
  CheckpointStore store(folder_, {.keep_last = 1, .keep_best = 2});
  for (const auto& [step, loss] : {std::pair<int64_t, double>{1, 0.3}, {2, 0.1}, {2, 0.2}, {3, 0.9}})
    save_scored(store, step, loss);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002", "step-00000003"));
  EXPECT_EQ(fs::read_symlink(folder_ / "best"), "step-00000002");
}

TEST_F(RetentionTest, KeepsNewerStepsOfAbandonedBranch) {
  CheckpointStore store(folder_, {.keep_last = 1});
  save(store, 5);
  save(store, 3);
  EXPECT_THAT(names(), ElementsAre("step-00000003", "step-00000005"));
}

}  // namespace
}  // namespace gputrain::checkpoint

#include "gputrain/checkpoint/store.hpp"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <string>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "store_fixture.hpp"

static bool removals_fail = false;

extern "C" __attribute__((visibility("default"))) int unlinkat(int folder, const char* name, int flags) noexcept {
  if (!removals_fail) return static_cast<int>(::syscall(SYS_unlinkat, folder, name, flags));
  errno = EPERM;
  return -1;
}

namespace gputrain::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using CheckpointStoreTest = StoreFixture;

TEST_F(CheckpointStoreTest, FindsNothingInEmptyFolder) {
  const Search search = CheckpointStore(folder_).find_newest();
  EXPECT_FALSE(search.newest);
  EXPECT_TRUE(search.rejected.empty());
}

TEST_F(CheckpointStoreTest, ReturnsTensorsAndStateOfNewestStep) {
  CheckpointStore store(folder_);
  save(store, 100);
  save(store, 20);  // a smaller number saved later is still the older step
  const Search search = store.find_newest();
  ASSERT_TRUE(search.newest);
  EXPECT_EQ(search.newest->step(), 100);
  EXPECT_EQ(search.newest->folder(), folder_ / "step-00000100");
  EXPECT_EQ(search.newest->state(), (nlohmann::json{{"loader_step", 100}}));
  EXPECT_EQ(weight_of(*search.newest), 100);
  EXPECT_EQ(search.newest->part("rng").tensor("cpu").numel(), 8);
  EXPECT_THROW(search.newest->part("optimizer"), Error);
}

TEST_F(CheckpointStoreTest, ListsCheckpointsWithTheirProblems) {
  CheckpointStore store(folder_, {.keep_last = 3});
  save(store, 1);
  save_scored(store, 2, 0.25);
  fs::resize_file(folder_ / "step-00000001/model.safetensors", 10);
  fs::copy(folder_ / "step-00000002", folder_ / "step-00000003");
  const auto listed = store.list();
  ASSERT_EQ(listed.size(), 3U);
  EXPECT_THAT(listed[0].problem, HasSubstr("its manifest is that of step 2"));
  EXPECT_EQ(listed[1].step, 2);
  EXPECT_EQ(listed[1].problem, "");
  EXPECT_EQ(listed[1].score->value, 0.25);
  EXPECT_THAT(listed[2].problem, HasSubstr("has 10 bytes instead of"));
}

TEST_F(CheckpointStoreTest, ListsNewestWholeOneAsNewest) {
  EXPECT_FALSE(newest_listed({folder_ / "missing"}));
  CheckpointStore store(folder_, {.keep_last = 3});
  for (const int step : {1, 2, 3}) save(store, step);
  fs::resize_file(folder_ / "step-00000003/model.safetensors", 10);
  EXPECT_EQ(newest_listed({folder_})->step, 2);
  fs::remove_all(folder_ / "step-00000002");
  fs::remove(folder_ / "step-00000001/manifest.json");
  EXPECT_FALSE(newest_listed({folder_}));
}

TEST_F(CheckpointStoreTest, SetsAsideUnderUniqueUnreadNames) {
  CheckpointStore store(folder_);
  for (int i = 0; i < 2; ++i) {
    save(store, 1);
    archive_checkpoint(folder_ / "step-00000001");
  }
  EXPECT_THAT(names(), ElementsAre("step-00000001.bad", "step-00000001.bad-2"));
  const Search search = store.find_newest();
  EXPECT_FALSE(search.newest);
  EXPECT_TRUE(search.rejected.empty());
}

TEST_F(CheckpointStoreTest, FindsTheNewestOfTwoFolders) {
  const fs::path near = folder_ / "near", far = folder_ / "far", missing = folder_ / "missing";
  CheckpointStore own(near, {.keep_last = 9}), copies(far, {.keep_last = 9});
  for (const int step : {1, 2}) save(own, step);
  for (const int step : {2, 3}) save(copies, step);
  EXPECT_EQ(find_newest({near, far}).newest->folder(), far / "step-00000003");
  EXPECT_EQ(find_newest({missing, near, far}).newest->step(), 3);
  fs::resize_file(far / "step-00000003/model.safetensors", 10);
  EXPECT_EQ(find_newest({near, far}).newest->folder(), near / "step-00000002");
  EXPECT_EQ(newest_listed({near, far})->folder, near / "step-00000002");
  fs::resize_file(near / "step-00000002/model.safetensors", 10);
  const Search search = find_newest({near, far});
  EXPECT_EQ(search.newest->folder(), far / "step-00000002");
  EXPECT_EQ(search.rejected.size(), 2U);
}

TEST_F(CheckpointStoreTest, IsSearchedForWhereAnotherFolderCannotBeRead) {
  CheckpointStore store(folder_);
  save(store, 1);
  fs::create_symlink("loop", folder_ / "loop");
  const Search search = find_newest({folder_, folder_ / "loop"});
  EXPECT_EQ(search.newest->step(), 1);
  EXPECT_THAT(search.unreadable, HasSubstr("cannot list checkpoints"));
  EXPECT_THROW(find_newest({folder_ / "loop", folder_}), Error);
}

TEST_F(CheckpointStoreTest, KeepsEachBranchInItsOwnFolder) {
  EXPECT_EQ(newest_branch_in(folder_), 1);
  CheckpointStore first(folder_, {.keep_last = 1}), second(folder_, {.keep_last = 1}, 2);
  save(first, 5);
  for (const int step : {3, 4}) save(second, step);
  EXPECT_THAT(names(), ElementsAre("branch-2", "step-00000005"));
  EXPECT_EQ(second.find_newest().newest->folder(), folder_ / "branch-2/step-00000004");
  EXPECT_EQ(second.list().size(), 1U);
  EXPECT_EQ(first.find_newest().newest->step(), 5);
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "branch-2/step-00000004");
  fs::create_directory(folder_ / "branch-3");  // nothing was saved there
  for (const char* other : {"branch-04", "branch-x", "branches"}) fs::copy(folder_ / "branch-2", folder_ / other);
  EXPECT_EQ(newest_branch_in(folder_), 2);
  EXPECT_EQ(branches_in(folder_).size(), 3U);
}

TEST_F(CheckpointStoreTest, LeavesOtherFormatVersionsInPlace) {
  CheckpointStore store(folder_);
  for (const int step : {1, 2}) save(store, step);
  const fs::path index = folder_ / "step-00000002/manifest.json";
  auto manifest = nlohmann::json::parse(content_of(index));
  manifest["version"] = 6;
  write_sealed_manifest(index, manifest);
  const auto search = store.find_newest();
  EXPECT_EQ(search.newest->step(), 1);
  ASSERT_EQ(search.rejected.size(), 1U);
  EXPECT_FALSE(search.rejected.front().is_damaged);
}

TEST_F(CheckpointStoreTest, CallsMissingPartDamage) {
  CheckpointStore store(folder_, {.keep_last = 2});
  for (const int step : {1, 2}) save(store, step);
  const fs::path manifest = folder_ / "step-00000002/manifest.json";
  auto json = nlohmann::json::parse(read_text(manifest));
  json["files"]["model.safetensors"]["part"] = "modem";
  write_sealed_manifest(manifest, json);
  const auto search = store.find_newest([](const Checkpoint& from) { from.part("model"); });
  ASSERT_TRUE(search.newest);
  EXPECT_EQ(search.newest->step(), 1);
  ASSERT_EQ(search.rejected.size(), 1U);
  EXPECT_TRUE(search.rejected.front().is_damaged);
}

TEST_F(CheckpointStoreTest, SavesWhereOldOneCannotBeRemoved) {
  CheckpointStore store(folder_, {.keep_last = 1});
  save(store, 1);
  removals_fail = true;
  for (const int step : {2, 3}) save(store, step);
  removals_fail = false;
  EXPECT_EQ(store.find_newest().newest->step(), 3);
  EXPECT_TRUE(newest_listed({folder_}));
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002", "step-00000003"));
  save(store, 4);
  EXPECT_THAT(names(), ElementsAre("step-00000004"));
}

TEST_F(CheckpointStoreTest, ChecksRoomBeforeTheFirstByte) {
  CheckpointStore store(folder_);
  save(store, 1);
  const at::Tensor petabytes = at::zeros({1}).expand({int64_t{1} << 50});
  try {
    store.save({.step = 2, .files = {{"model", {{"w", petabytes}}}}, .state = "{}"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no room"));
  }
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(CheckpointStoreTest, SavesAStepAgainBesideTheFirst) {
  CheckpointStore store(folder_, {.keep_last = 2});
  save(store, 6);
  save(store, 7);
  const Snapshot again{.step = 7, .files = {{"model", {{"w", at::ones({3})}}}}, .state = "{}"};
  const fs::path second = store.write(again);
  EXPECT_EQ(second, folder_ / "step-00000007-2");
  EXPECT_EQ(weight_of(*store.find_newest().newest), 1);
  EXPECT_EQ(store.write(again), folder_ / "step-00000007-3");
  fs::remove_all(second);
  EXPECT_EQ(store.write(again), folder_ / "step-00000007-4");  // never a name that would look older
  fs::remove_all(folder_ / "step-00000007-3");
  EXPECT_EQ(store.confirm(folder_ / "step-00000007-4"), folder_ / "step-00000007");
  EXPECT_THAT(names(), ElementsAre("step-00000006", "step-00000007"));
  EXPECT_EQ(weight_of(*store.find_newest().newest), 1);
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "step-00000007");
  fs::create_directory_symlink("/nowhere", folder_ / "step-00000008");
  EXPECT_EQ(store.write({.step = 8, .state = "{}"}), folder_ / "step-00000008-2");
}

TEST_F(CheckpointStoreTest, KeepsTheFirstSaveIfTheSecondIsDamaged) {
  CheckpointStore store(folder_, {.keep_last = 1});
  save(store, 7);
  const Snapshot again{.step = 7, .files = {{"model", {{"w", at::ones({3})}}}}, .state = "{}"};
  const fs::path damaged = store.write(again);
  std::string content = content_of(damaged / "model.safetensors");
  content.back() ^= 1;
  overwrite(damaged / "model.safetensors", content);
  EXPECT_THROW(store.confirm(damaged), Damage);
  EXPECT_TRUE(store.prune(store.find_newest()).empty());
  const fs::path unreadable = store.write(again);
  fs::remove(unreadable / "model.safetensors");
  fs::create_symlink("model.safetensors", unreadable / "model.safetensors");  // a loop
  EXPECT_THROW(store.confirm(unreadable), Unreadable);
  const auto search = store.find_newest();
  EXPECT_EQ(search.newest->folder(), folder_ / "step-00000007");
  EXPECT_EQ(search.rejected.size(), 2U);
  save(store, 9);
  EXPECT_THAT(names(), ElementsAre("step-00000009"));
}

TEST_F(CheckpointStoreTest, TellsNamesOfCheckpointsFromOthers) {
  EXPECT_EQ(parse_step_name("step-00000100")->step, 100);
  EXPECT_EQ(parse_step_name("step-123456789-12")->number, 12);
  EXPECT_EQ(parse_step_name("step-00000100-2.bad-3")->suffix, ".bad-3");
  for (const char* name : {"step-100", "step-00000100-1", "step-00000100-02", "step-0000010x", "step-", "step--0000100",
                           "latest", "step-00000100-", "step-99999999999999999999"})
    EXPECT_FALSE(parse_step_name(name)) << name;
}

TEST_F(CheckpointStoreTest, IgnoresAndRemovesPartialLeftovers) {
  CheckpointStore store(folder_);
  save(store, 1);
  fs::copy(folder_ / "step-00000001", folder_ / "step-00000002.partial");
  EXPECT_EQ(store.find_newest().newest->step(), 1);
  save(store, 2);
  EXPECT_EQ(store.find_newest().newest->step(), 2);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
}

struct Injury {
  std::string reason;
  void (*apply)(const fs::path& folder);
};

TEST_F(CheckpointStoreTest, FallsBackToNewestGoodOneAndSaysWhy) {
  const std::vector<Injury> injuries{
      {"has no manifest", [](const fs::path& f) { fs::remove(f / "manifest.json"); }},
      {"manifest.json: damaged", [](const fs::path& f) { overwrite(f / "manifest.json", ""); }},
      {"manifest.json: damaged", [](const fs::path& f) { overwrite(f / "manifest.json", "[1]"); }},
      {"manifest.json: not a manifest", [](const fs::path& f) { overwrite(f / "manifest.json", R"({"format":"x"})"); }},
      {"format version 1 is unknown",
       [](const fs::path& f) { overwrite(f / "manifest.json", R"({"format":"gputrain checkpoint","version":1})"); }},
      {"points outside the folder",
       [](const fs::path& f) {
         auto manifest = nlohmann::json::parse(content_of(f / "manifest.json"));
         manifest["files"] = {{"../step-00000001/state.json", {{"bytes", 1}, {"xxh3_128", ""}}}};
         write_sealed_manifest(f / "manifest.json", manifest);
       }},
      {"does not list state.json",
       [](const fs::path& f) {
         auto manifest = nlohmann::json::parse(content_of(f / "manifest.json"));
         manifest["files"] = nlohmann::json::object();
         write_sealed_manifest(f / "manifest.json", manifest);
       }},
      {"manifest.json: damaged: its seal differs",
       [](const fs::path& f) {
         auto manifest = nlohmann::json::parse(content_of(f / "manifest.json"));
         manifest["origin"]["world_size"] = 2;
         overwrite(f / "manifest.json", manifest.dump(2) + "\n");
       }},
      {"model.safetensors: missing", [](const fs::path& f) { fs::remove(f / "model.safetensors"); }},
      {"model.safetensors: has 10 bytes instead of",
       [](const fs::path& f) { fs::resize_file(f / "model.safetensors", 10); }},
      {"state.json: damaged: its hash differs",
       [](const fs::path& f) {
         std::string text = content_of(f / "state.json");
         std::replace(text.begin(), text.end(), '2', '3');
         overwrite(f / "state.json", text);
       }},
      {"manifest is that of step 1", [](const fs::path& f) {
         fs::remove_all(f);
         fs::copy(f.parent_path() / "step-00000001", f);
       }}};
  for (const Injury& injury : injuries) {
    fs::remove_all(folder_);
    CheckpointStore store(folder_);
    save(store, 1);
    save(store, 2);
    injury.apply(folder_ / "step-00000002");
    const Search search = store.find_newest();
    ASSERT_TRUE(search.newest) << injury.reason;
    EXPECT_EQ(search.newest->step(), 1) << injury.reason;
    ASSERT_EQ(search.rejected.size(), 1u) << injury.reason;
    EXPECT_EQ(search.rejected[0].folder, folder_ / "step-00000002");
    EXPECT_THAT(search.rejected[0].reason, HasSubstr(injury.reason));
  }
}

bool is_refused(const fs::path& folder) {
  try {
    Checkpoint::open(folder);
    return false;
  } catch (const Error& error) {
    return error.code() == ExitCode::checkpoint;
  }
}

TEST_F(CheckpointStoreTest, DetectsEveryFlippedBitAndTruncation) {
  CheckpointStore store(folder_);
  save(store, 3);
  const Checkpoint original = *store.find_newest().newest;
  for (const auto& entry : fs::directory_iterator(original.folder())) {
    const std::string good = content_of(entry.path());
    const fs::path path = entry.path();
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      fs::remove(path);  // a new file, because `original` maps the old one
      overwrite(path, bad);
      EXPECT_TRUE(is_refused(original.folder())) << path << " byte " << i;
      overwrite(path, good.substr(0, i));
      EXPECT_TRUE(is_refused(original.folder())) << path << " cut at " << i;
    }
    overwrite(path, good);
  }
  EXPECT_EQ(store.find_newest().newest->step(), 3);
}

// A file size limit makes the kernel fail a write in the middle, like a full disk.
TEST_F(CheckpointStoreTest, KeepsOldOneWhenDiskRefusesTheWrite) {
  CheckpointStore store(folder_);
  save(store, 1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  // Fails in the only block; in the third block, after whole blocks were written; in the rest after whole blocks.
  for (const auto& [limit, items] :
       std::map<rlim_t, int64_t>{{20'000, 10'000}, {20'000'000, 10'000'000}, {39'999'000, 10'000'000}}) {
    const rlimit small{limit, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_THROW(store.save({.step = 2, .files = {{"model", {{"w", at::ones({items})}}}}, .state = "{}"}), Error)
        << limit;
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_THAT(names(), ElementsAre("step-00000001")) << limit;
    EXPECT_EQ(store.find_newest().newest->step(), 1) << limit;
  }
  std::signal(SIGXFSZ, handler);
}

TEST_F(CheckpointStoreTest, ReportsPathItCannotWrite) {
  overwrite(folder_, "a file in the place of the folder");
  CheckpointStore store(folder_ / "ckpt");
  try {
    save(store, 1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_EQ(error.parts().where, (folder_ / "ckpt").string());
  }
}

}  // namespace
}  // namespace gputrain::checkpoint

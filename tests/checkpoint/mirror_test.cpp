#include "gputrain/checkpoint/mirror.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "gputrain/core/atomic_file.hpp"
#include "support/needs.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MirrorTest : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  /// Saves a checkpoint of `numbers` floats whose value is the step.
  fs::path save(int64_t step, int64_t numbers = 1000) {
    return local_.save({.step = step,
                        .files = {{"model", {{"w", at::full({numbers}, static_cast<float>(step))}}}},
                        .state = "{}",
                        .score = Score{"val/loss", 1.0 / static_cast<double>(step)}});
  }
  /// Mirrors a checkpoint and returns the error, if any.
  std::string mirror(Mirror& mirror, const fs::path& checkpoint) {
    mirror.begin(checkpoint);
    EXPECT_TRUE(mirror.wait(60));
    std::string text;
    for (const auto& result : mirror.take_results()) text += result.failure ? result.failure->what() : "";
    return text;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(mirrored_)) {
      if (!entry.is_symlink()) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  int64_t newest() const {
    const auto found = CheckpointStore(mirrored_).find_newest().newest;
    return found ? found->step() : -1;
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_mirror_" + std::to_string(::getpid()));
  const fs::path mirrored_ = folder_ / "far" / "mirror";
  CheckpointStore local_{folder_ / "ckpt", {.keep_last = 9}};
};

TEST_F(MirrorTest, CopiesEveryByteAndAppliesRetention) {
  Mirror copies(mirrored_, {.keep_last = 2});
  for (const int64_t step : {1, 2, 3}) EXPECT_EQ(mirror(copies, save(step)), "");
  EXPECT_THAT(names(), ElementsAre("step-00000002", "step-00000003"));
  const Checkpoint copy = Checkpoint::open(mirrored_ / "step-00000003"),
                   original = Checkpoint::open(local_.folder() / "step-00000003");
  EXPECT_EQ(to_json(copy.manifest()), to_json(original.manifest()));
  EXPECT_EQ(local_.list().size(), 3U);
}

TEST_F(MirrorTest, ReportsCopyOnceWithStepSizeAndTime) {
  Mirror copies(mirrored_, {});
  const fs::path checkpoint = save(7);
  copies.begin(checkpoint);
  ASSERT_TRUE(copies.wait(60));
  const auto results = copies.take_results();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].step, 7);
  EXPECT_GT(results[0].bytes, 4000U);
  EXPECT_GT(results[0].seconds, 0);
  copies.begin(checkpoint);
  ASSERT_TRUE(copies.wait(60));
  EXPECT_THAT(copies.take_results(), IsEmpty());
}

TEST_F(MirrorTest, CopiesAStepThatWasSavedAgain) {
  Mirror copies(mirrored_, {});
  EXPECT_EQ(mirror(copies, save(5)), "");
  fs::create_directory(mirrored_ / "step-00000009.partial");
  EXPECT_EQ(mirror(copies, save(5, 77)), "");
  EXPECT_EQ(Checkpoint::open(mirrored_ / "step-00000005").part("model").tensor("w").numel(), 77);
  EXPECT_THAT(names(), ElementsAre("step-00000005"));
}

TEST_F(MirrorTest, KeepsCopiesOfABranchApart) {
  Mirror first(mirrored_, {.keep_last = 1}), second(mirrored_, {.keep_last = 1}, 2);
  EXPECT_EQ(mirror(first, save(9)), "");
  for (const int64_t step : {3, 4}) EXPECT_EQ(mirror(second, save(step)), "");
  EXPECT_EQ(newest(), 9);
  EXPECT_EQ(CheckpointStore(mirrored_, {}, 2).list().size(), 1U);
}

TEST_F(MirrorTest, NeverPutsDamageInPlace) {
  Mirror copies(mirrored_, {});
  const fs::path checkpoint = save(5);
  std::fstream file(checkpoint / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end).put('\x7f');
  file.close();
  EXPECT_THAT(mirror(copies, checkpoint), HasSubstr("hash"));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(MirrorTest, ReportsWriteFailureAndRecovers) {
  fs::create_directories(mirrored_.parent_path());
  std::ofstream(mirrored_) << "a file where the folder should be";
  Mirror copies(mirrored_, {});
  EXPECT_NE(mirror(copies, save(1)), "");
  fs::remove(mirrored_);
  EXPECT_EQ(mirror(copies, save(2)), "");
  EXPECT_EQ(newest(), 2);
}

TEST_F(MirrorTest, ChecksRoomBeforeTheFirstByte) {
  Mirror copies(mirrored_, {});
  const fs::path checkpoint = save(1);
  Manifest manifest = look_at_files(checkpoint);
  auto& bytes = manifest.files.at("model.safetensors").seal.bytes;
  bytes = fs::space(folder_).available + (uint64_t{1} << 33);
  fs::resize_file(checkpoint / "model.safetensors", bytes);  // sparse
  write_file_atomically(checkpoint / kManifestName, to_json(manifest), ExitCode::checkpoint);
  EXPECT_THAT(mirror(copies, checkpoint), HasSubstr("no room for a checkpoint"));
  EXPECT_THAT(names(), IsEmpty());
}

/// The mirror on a separate disk: a small tmpfs.
class MirrorDiskTest : public MirrorTest {
 protected:
  void SetUp() override {
    fs::create_directories(mirrored_);
    GPUTRAIN_SKIP_FOR(gputrain::testing::no_own_mounts());
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(::mount("none", mirrored_.c_str(), "tmpfs", 0, "size=3m"), 0);
  }
  void TearDown() override {
    ::umount2(mirrored_.c_str(), MNT_DETACH);
    MirrorTest::TearDown();
  }
};

TEST_F(MirrorDiskTest, KeepsOldCopyWhenFullAndRecovers) {
  Mirror copies(mirrored_, {.keep_last = 1});
  EXPECT_EQ(mirror(copies, save(1, 200'000)), "");
  copies.hold(true);
  copies.begin(save(2, 200'000));
  EXPECT_FALSE(copies.wait(0.5));  // it has checked the free space
  std::ofstream(mirrored_ / "filler") << std::string(size_t{2} << 20, 'x');
  copies.hold(false);
  EXPECT_TRUE(copies.wait(60));
  const auto results = copies.take_results();
  ASSERT_EQ(results.size(), 1U);
  ASSERT_TRUE(results[0].failure);
  EXPECT_THAT(results[0].failure->what(), HasSubstr("No space left"));
  EXPECT_THAT(names(), ElementsAre("filler", "step-00000001"));
  EXPECT_THAT(mirror(copies, save(3, 300'000)),
              ::testing::AllOf(HasSubstr("no room for a checkpoint"), HasSubstr(" KiB are free")));
  fs::remove(mirrored_ / "filler");
  EXPECT_EQ(mirror(copies, save(4, 200'000)), "");
  EXPECT_THAT(names(), ElementsAre("step-00000004"));
}

TEST_F(MirrorDiskTest, ReportsReadOnlyDiskButReadsIt) {
  Mirror copies(mirrored_, {});
  EXPECT_EQ(mirror(copies, save(1)), "");
  ASSERT_EQ(::mount(nullptr, mirrored_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  EXPECT_THAT(mirror(copies, save(2)), HasSubstr("Read-only file system"));
  EXPECT_EQ(newest(), 1);
}

TEST_F(MirrorTest, SkipsPrunedCheckpointSilently) {
  Mirror copies(mirrored_, {});
  const fs::path checkpoint = save(1);
  fs::remove_all(checkpoint);
  EXPECT_EQ(mirror(copies, checkpoint), "");
  EXPECT_FALSE(fs::exists(mirrored_ / "step-00000001"));
}

TEST_F(MirrorTest, CopiesNothingWhileHeldThenTheNewest) {
  Mirror copies(mirrored_, {.keep_last = 9});
  copies.hold(true);
  copies.begin(save(1));
  EXPECT_FALSE(copies.wait(0.3));
  for (const int64_t step : {2, 3, 4}) copies.begin(save(step));
  EXPECT_FALSE(copies.wait(0.1));
  EXPECT_EQ(newest(), -1);
  copies.hold(false);
  EXPECT_TRUE(copies.wait(60));
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000004"));
}

TEST_F(MirrorTest, LeavesNoPartialCopyWhenStopped) {
  {
    Mirror copies(mirrored_, {});
    EXPECT_EQ(mirror(copies, save(1)), "");
    copies.hold(true);
    copies.begin(save(2));
    EXPECT_FALSE(copies.wait(0.2));
  }
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(MirrorTest, SurvivesVanishingFolder) {
  Mirror copies(mirrored_, {});
  for (int64_t step = 1; step <= 40; ++step) {
    copies.begin(save(step, 300'000));
    std::error_code ignored;
    while (!copies.wait(0.0005 * static_cast<double>(step % 8))) fs::remove_all(mirrored_, ignored);
    copies.take_results();
  }
  EXPECT_EQ(mirror(copies, save(41)), "");
  EXPECT_EQ(newest(), 41);
}

TEST_F(MirrorTest, SurvivesUnreadableOriginal) {
  Mirror copies(mirrored_, {});
  const fs::path checkpoint = save(1), partial = mirrored_ / "step-00000001.partial";
  copies.hold(true);
  copies.begin(checkpoint);
  while (!fs::exists(partial)) ASSERT_FALSE(copies.wait(0.01));  // it has read the manifest
  fs::remove_all(local_.folder());
  fs::create_symlink(local_.folder(), local_.folder());  // a link to itself: even a lookup fails
  copies.hold(false);
  EXPECT_TRUE(copies.wait(60));
  EXPECT_THAT(copies.take_results(), IsEmpty());
  fs::remove(local_.folder());
  EXPECT_EQ(mirror(copies, save(2)), "");
}

}  // namespace
}  // namespace gputrain::checkpoint

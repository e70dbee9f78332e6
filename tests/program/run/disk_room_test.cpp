// Disks that are too small for a checkpoint: reported before training, not at the first save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "gputrain/monitor/format.hpp"
#include "support/needs.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DiskSpaceCheck : public ::testing::Test {
 protected:
  void SetUp() override { GPUTRAIN_SKIP_FOR(testing::no_own_mounts()); }

  /// Runs `gputrain` with a disk of this size mounted at the folder `disk`.
  Result with_disk(int kibibytes, const std::vector<std::string>& arguments) {
    std::filesystem::create_directories(folder_ / "disk");
    const std::string mount = "mount -t tmpfs -o size=" + std::to_string(kibibytes) + "k tmpfs " + (folder_ / "disk");
    std::vector<std::string> all{"unshare", "-m", "sh", "-c", mount + R"( && exec "$@")", "sh", gputrain_path()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Program(all).wait();
  }

  /// The size of a run's newest checkpoint, as text.
  static std::string size_of_checkpoint(const std::string& run) {
    double bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(run + "/ckpt/step-00000020")) {
      if (file.path().extension() == ".safetensors") bytes += static_cast<double>(file.file_size());
    }
    return monitor::bytes(bytes);
  }

  TemporaryFolder folder_;
  std::string job_ = write_gpt_job(folder_), disk_ = folder_ / "disk";
};

TEST_F(DiskSpaceCheck, WarnsOfSmallRunDiskAtStart) {
  ASSERT_EQ(gputrain({"run", job_, "--output-dir", folder_ / "run"}).exit_code, 0);
  const Result result = with_disk(128, {"run", job_, "--output-dir", disk_ + "/run"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("warning: " + disk_ + "/run: one checkpoint needs " +
                                    size_of_checkpoint(folder_ / "run") + ", "));
  EXPECT_LT(result.err.find("one checkpoint needs"), result.err.find("no checkpoint of step"));
}

TEST_F(DiskSpaceCheck, CountsFilesOfAllRanks) {
  const std::vector<std::string> two{"launch", "--nproc-per-node",        "2", "run", job_,
                                     "--set",  "parallel.shard=optimizer"};
  const auto in = [&](const std::string& run) {
    auto all = two;
    all.insert(all.end(), {"--output-dir", run});
    return all;
  };
  ASSERT_EQ(gputrain(in(folder_ / "run")).exit_code, 0);
  EXPECT_THAT(with_disk(128, in(disk_ + "/run")).err,
              HasSubstr("one checkpoint needs " + size_of_checkpoint(folder_ / "run") + ", "));
}

TEST_F(DiskSpaceCheck, WarnsOfSmallMirrorDiskAtStart) {
  const Result result =
      with_disk(128, {"run", job_, "--output-dir", folder_ / "run", "--set", "checkpoint.mirror=" + disk_ + "/m"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("warning: " + disk_ + "/m: one checkpoint needs "), Not(HasSubstr("/run: one"))));
}

TEST_F(DiskSpaceCheck, RefusesDryRunOnSmallDisk) {
  const Result result = with_disk(128, {"run", job_, "--output-dir", disk_ + "/run", "--dry-run"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("one checkpoint needs "));
  EXPECT_EQ(with_disk(4096, {"run", job_, "--output-dir", disk_ + "/run", "--dry-run"}).exit_code, 0);
}

TEST_F(DiskSpaceCheck, WarnsWithoutRoomBeyondKeptCheckpoints) {
  ASSERT_EQ(gputrain({"run", job_, "--output-dir", folder_ / "run"}).exit_code, 0);
  const std::string size = size_of_checkpoint(folder_ / "run");
  const int enough_for_two = static_cast<int>(2.5 * std::stod(size));
  ASSERT_THAT(size, HasSubstr(" KiB"));
  const std::vector<std::string> often{"run",       job_,    "--output-dir",         disk_ + "/run",
                                       "--dry-run", "--set", "checkpoint.interval=5"};
  const Result result = with_disk(enough_for_two, often);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("there is room for 2 checkpoints of " + size + "; checkpoint.keep_last: 2 takes"));
  auto once = often;
  once.back() = "checkpoint.interval=null";
  EXPECT_EQ(with_disk(enough_for_two, once).err, "");
}

TEST_F(DiskSpaceCheck, StaysSilentOnLargeDisk) {
  const Result result = with_disk(8192, {"run", job_, "--output-dir", disk_ + "/run"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace gputrain::testing_support

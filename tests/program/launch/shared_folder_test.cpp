// Hosts that do not share the run folder, or not all of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "support/needs.hpp"
#include "support/program.hpp"
#include "support/sanitizers.hpp"
#include "support/small_job.hpp"
#include "support/ssh_hosts.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Settings = std::vector<std::string>;

/// Two hosts with a rank each. `run_` is below `disk_`, which they share until a test gives each its own.
class SharedFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    GPUTRAIN_SKIP_FOR(SshHosts::missing());
    std::filesystem::create_directory(disk_);
    hosts_.emplace(2);
  }

  void give_each_host_its_own_disk() const {
    for (const int host : {1, 2}) hosts_->change(host, {"mount", "-t", "tmpfs", "tmpfs", disk_});
  }

  Result launch(const Settings& settings, const std::string& hosts = "h1,h2") const {
    std::vector<std::string> words{"launch", "--hosts", hosts, "run", job_, "--output-dir", run_, "--accept"};
    for (const auto& setting : settings) words.insert(words.end(), {"--set", setting});
    return gputrain(words, hosts_->environment());
  }

  /// Runs a shell command on a host; throws if it fails.
  void on(int host, const std::string& command) const { hosts_->change(host, {"sh", "-ec", command}); }

  void copy_run_to_second_host() const {
    on(1, "cp -r " + run_ + " " + (folder_ / "copy"));
    on(2, "rm -rf " + run_ + "; mv " + (folder_ / "copy") + " " + run_);
  }

  TemporaryFolder folder_;
  std::string disk_ = folder_ / "disk", run_ = disk_ + "/run", newest_ = run_ + "/ckpt/step-00000020";
  std::string job_ = write_gpt_job(folder_, "device: cpu\nenv: {OMP_NUM_THREADS: 1}\n");
  std::optional<SshHosts> hosts_;
};

class SharedFolderOfParts : public SharedFolder, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Ways, SharedFolderOfParts,
                         ::testing::Values("parallel.shard=parameters", "parallel.pipeline=2"));

TEST_P(SharedFolderOfParts, IsMissedAtOnce) {
  give_each_host_its_own_disk();
  const auto begin = std::chrono::steady_clock::now();
  // The data is not there either: who is missing the folder says so first.
  const Result result = launch({GetParam(), "data.train={format: text, path: /nowhere}"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, testing::patience(std::chrono::seconds(15)));
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("the hosts do not share the run folder: rank 1 on "), HasSubstr(run_),
                                HasSubstr("mount one disk there on every host")));
  for (const int host : {1, 2})
    on(host, "ls -AR " + disk_ + " | grep -e gputrain- -e ckpt && exit 1; true");  // no mark, no checkpoint
}

TEST_F(SharedFolder, IsNoTopicWhenItIsShared) {
  const Result result = launch({"parallel.shard=parameters"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("share the run folder")));
}

TEST_F(SharedFolder, IsNotNeededToTrainButToGoOn) {
  give_each_host_its_own_disk();
  const Result first = launch({});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, AllOf(HasSubstr("the hosts do not share the run folder: rank 1 on "),
                               HasSubstr("Rank 0 saves alone"), HasSubstr("before a restart")));
  const Settings further{"train.max_steps=25"};
  const Result blind = launch(further);
  EXPECT_EQ(blind.exit_code, 5) << blind.out;
  EXPECT_THAT(blind.err,
              AllOf(HasSubstr("cannot be read on every host. On "), HasSubstr("rank 1 says: has no manifest"),
                    HasSubstr("finds it as it was written"), Not(HasSubstr(".bad"))));
  on(1, "test -d " + newest_);

  copy_run_to_second_host();
  on(2, "sed -i s/a/b/ " + newest_ + "/state.json");
  const Result damaged = launch(further);
  EXPECT_EQ(damaged.exit_code, 5) << damaged.out;
  EXPECT_THAT(damaged.err, HasSubstr("rank 1 says: damaged: its hash differs"));
  on(1, "test -d " + newest_);

  copy_run_to_second_host();
  const Result result = launch(further);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 20 "));
}

TEST_F(SharedFolder, IsNotStartedOverBesideNewerCheckpoints) {
  give_each_host_its_own_disk();
  ASSERT_EQ(launch({}).exit_code, 0);
  const Result result = launch({"train.max_steps=25"}, "h2,h1");
  EXPECT_EQ(result.exit_code, 5) << result.out;
  EXPECT_THAT(result.err, AllOf(HasSubstr("the newest checkpoint is not on that of rank 0"), HasSubstr("has step 20")));
}

TEST_F(SharedFolder, KeepsCheckpointsOfWhichOneHostSeesOtherFiles) {
  const Settings sharded{"parallel.shard=parameters"};
  ASSERT_EQ(launch(sharded).exit_code, 0);
  const Settings further{"parallel.shard=parameters", "train.max_steps=25"};
  const std::string shard = newest_ + "/optimizer-00002-of-00002.safetensors", other = folder_ / "other";
  on(2, "cp " + shard + " " + other + "; printf x | dd of=" + other + " bs=1 seek=$(($(stat -c %s " + other +
            ") - 1)) conv=notrunc 2>&1; mount --bind " + other + " " + shard);
  const Result damaged = launch(further);
  EXPECT_EQ(damaged.exit_code, 5) << damaged.out;
  EXPECT_THAT(damaged.err,
              AllOf(HasSubstr("rank 1 says: damaged: its hash differs"), HasSubstr("finds it as it was written")));
  on(2, "umount " + shard + "; mount -t tmpfs tmpfs " + run_ + "/ckpt");
  const Result hidden = launch(further);
  EXPECT_EQ(hidden.exit_code, 5) << hidden.out;
  EXPECT_THAT(hidden.err, HasSubstr("rank 1 says: has no manifest"));
  const Result given = launch({"parallel.shard=parameters", "checkpoint.resume=" + newest_});
  EXPECT_EQ(given.exit_code, 5) << given.out;
  EXPECT_THAT(given.err, HasSubstr("rank 1 on "));
  on(2, "umount " + run_ + "/ckpt");
  const Result result = launch(further);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 20 "));
}

}  // namespace
}  // namespace gputrain::testing_support

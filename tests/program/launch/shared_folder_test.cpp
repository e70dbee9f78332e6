// Hosts that do not share the run folder, or not all of it, the mirror or the data.
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
using ::testing::ContainsRegex;
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
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, AllOf(ContainsRegex("rank 1 on [^ ]+ does not see the run folder of rank 0 on "),
                                HasSubstr("it is not on a shared disk"), HasSubstr(run_), HasSubstr("--output-dir")));
  for (const int host : {1, 2})
    on(host, "ls -AR " + disk_ + " | grep -e gputrain- -e ckpt && exit 1; true");  // no mark, no checkpoint
}

TEST_F(SharedFolder, IsNoTopicWhenItIsShared) {
  const Result result = launch({"parallel.shard=parameters"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("not see")));
}

TEST_F(SharedFolder, IsNotNeededToTrainButToGoOn) {
  give_each_host_its_own_disk();
  const Result first = launch({});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, AllOf(HasSubstr(" does not see the run folder of rank 0 on "), HasSubstr("Rank 0 saves alone"),
                               HasSubstr("before a restart")));
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

TEST_F(SharedFolder, IsNotNeededToGoOnWithAMirror) {
  const std::string whole = folder_ / "whole", mirror = folder_ / "mirror";
  const Result at_once =
      gputrain({"launch", "--hosts", "h1,h2", "run", job_, "--output-dir", whole, "--set", "train.max_steps=30"},
               hosts_->environment());
  ASSERT_EQ(at_once.exit_code, 0) << at_once.err;
  give_each_host_its_own_disk();
  const auto until = [&](const std::string& steps) {
    return Settings{"train.max_steps=" + steps, "checkpoint.mirror=" + mirror};
  };
  const Result first = launch(until("20"));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, Not(HasSubstr("before a restart")));
  const Result second = launch(until("25"));
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("resume  step 20 "));

  // The newest one was not copied when the run died, and cannot be copied now: all go back.
  std::filesystem::remove_all(mirror + "/step-00000025");
  on(1, "mount --bind " + mirror + " " + mirror + "; mount -o remount,ro,bind " + mirror);
  const Result back = launch(until("27"));
  ASSERT_EQ(back.exit_code, 0) << back.err;
  EXPECT_THAT(back.out, HasSubstr("resume  step 20 "));
  EXPECT_THAT(back.err, HasSubstr("checkpoint skipped: "));

  // It can be copied: the others wait for that.
  on(1, "umount " + mirror);
  const Result copied = launch(until("30"));
  ASSERT_EQ(copied.exit_code, 0) << copied.err;
  EXPECT_THAT(copied.out, HasSubstr("resume  step 27 "));
  on(1, "cp " + run_ + "/model.safetensors " + (folder_ / "resumed"));
  EXPECT_EQ(read_file(folder_ / "resumed"), read_file(whole + "/model.safetensors"));

  on(1, "rm -r " + run_);  // another host has taken the place of that of rank 0
  const Result replaced = launch(until("35"));
  ASSERT_EQ(replaced.exit_code, 0) << replaced.err;
  EXPECT_THAT(replaced.out, HasSubstr("resume  step 30 "));
}

TEST_F(SharedFolder, IsNoPlaceForAMirrorThatOneHostSees) {
  give_each_host_its_own_disk();
  const Result result = launch({"checkpoint.mirror=" + disk_ + "/mirror"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("checkpoint.mirror " + disk_ + "/mirror: rank 1 on "),
                                HasSubstr("the run could not go on from it"), HasSubstr("before a restart")));
}

TEST_F(SharedFolder, IsToldOfDataThatOneHostLacksOrHasOtherwise) {
  give_each_host_its_own_disk();
  const std::string text = folder_ / "text.txt", own = disk_ + "/own.txt";
  const Settings settings{"data.train={format: text, path: '" + own + "'}"};
  on(1, "cp " + text + " " + own);
  const Result missing = launch(settings);
  EXPECT_EQ(missing.exit_code, 3) << missing.out;
  EXPECT_THAT(missing.err, ContainsRegex("rank 1 on [^ ]+ does not see data.train.path, and rank 0 on [^ ]+ does"));
  const Result missing_first = launch(settings, "h2,h1");
  EXPECT_EQ(missing_first.exit_code, 3) << missing_first.out;
  EXPECT_THAT(missing_first.err, ContainsRegex("rank 0 on [^ ]+ does not see data.train.path, and rank 1 on "));

  on(2, "head -c 3000 " + text + " > " + own);
  const Result shorter = launch(settings);
  EXPECT_EQ(shorter.exit_code, 3) << shorter.out;
  EXPECT_THAT(shorter.err, ContainsRegex("not the same data on every host: [0-9,]+ samples for rank 1 on "));

  on(2, "tr ca ac < " + text + " > " + own);
  const Result other = launch(settings);
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("data.train has other content for rank 1 on "));
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

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <sched.h>

#include "gputrain/core/descriptor.hpp"
#include "support/fake_cloud.hpp"
#include "support/needs.hpp"
#include "support/process_family.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"
#include "support/ssh_hosts.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Clock = std::chrono::steady_clock;
using Settings = std::vector<std::string>;

class MultiHostLaunch : public ::testing::Test {
 protected:
  void SetUp() override {
    GPUTRAIN_SKIP_FOR(SshHosts::missing());
    hosts_.emplace(3);
  }

  /// Starts the launcher. Ranks get the family's mark from the job's env:, because no other variable reaches other
  /// hosts.
  void launch(const std::string& hosts, const Settings& options, const Settings& settings) {
    const std::string job =
        write_gpt_job(folder_, "log: {interval: 1}\nenv: {OMP_NUM_THREADS: 1, GPUTRAIN_METADATA_URL: '" + metadata_ +
                                   "', GPUTRAIN_TEST_MARK: '" + family_.mark() + "', MY_TOKEN: 'not-to-be-seen'}\n");
    Settings command{gputrain_path(), "launch", "--hosts", hosts};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"run", job, "--output-dir", run_, "--set", "train.global_batch_size=12"});
    for (const auto& setting : settings) command.insert(command.end(), {"--set", setting});
    auto environment = family_.environment();
    environment.merge(hosts_->environment());
    program_.emplace(command, environment);
  }

  std::string one_process(const Settings& settings) {
    Settings command{gputrain_path(), "run",   folder_ / "job.yaml",        "--output-dir",
                     folder_ / "one", "--set", "train.global_batch_size=12"};
    for (const auto& setting : settings) command.insert(command.end(), {"--set", setting});
    EXPECT_EQ(Program(command, kFromDisk).wait().exit_code, 0);
    return folder_ / "one";
  }

  void expect_end(int exit_code, const std::string& cause, double seconds) {
    const auto begin = Clock::now();
    const Result result = program_->wait(seconds);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(cause)) << result.out;
    const double left = seconds - std::chrono::duration<double>(Clock::now() - begin).count();
    EXPECT_TRUE(hosts_->are_empty_within(left)) << ::testing::PrintToString(hosts_->commands());
    EXPECT_TRUE(family_.ends_within(1)) << ::testing::PrintToString(family_.living());
  }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run", metadata_ = "aws=http://127.0.0.1:9";
  std::optional<SshHosts> hosts_;
  ProcessFamily family_;
  std::optional<Program> program_;
};

/// A metadata service for one host only: every host asks its own loopback.
class CloudOf {
 public:
  CloudOf(const SshHosts& hosts, int host) {
    std::thread([&] {
      const Descriptor there(::open(("/run/netns/" + hosts.entering(host).back()).c_str(), O_RDONLY | O_CLOEXEC));
      if (::setns(there.get(), CLONE_NEWNET) == 0) cloud_.emplace("aws");
    }).join();
  }
  gputrain::testing::FakeCloud& operator*() { return cloud_.value(); }

 private:
  std::optional<gputrain::testing::FakeCloud> cloud_;
};

const Settings kNeverEnding{"train.max_steps=1000000", "eval.interval=null", "checkpoint.interval=null"};

TEST_F(MultiHostLaunch, TrainsLikeOneProcess) {
  launch("h1:2,h2:2", {}, {});
  const Result result = program_->wait();
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("4 ranks on h1:2, h2:2"), HasSubstr("gloo over eth0 (10.231.")));
  EXPECT_TRUE(hosts_->are_empty_within(5));
  const auto expected = losses_of(one_process({})), actual = losses_of(run_);
  ASSERT_EQ(actual.size(), 20U);
  for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(actual[i], expected.at(i), 1e-9);
}

TEST_F(MultiHostLaunch, KeepsSecretsOffCommandLines) {
  launch("h1,h2", {}, kNeverEnding);
  ASSERT_TRUE(program_->prints("step    3/"));
  EXPECT_THAT(read_file("/proc/" + std::to_string(family_.rank(1)) + "/environ"), HasSubstr("MY_TOKEN=not-to-be-seen"));
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    EXPECT_THAT(read_file(entry.path() / "cmdline"), Not(HasSubstr("not-to-be-seen")));
  }
  program_->signal(SIGTERM);
  expect_end(143, "", 30);
}

TEST_F(MultiHostLaunch, ReportsUnreachableHostsAtStart) {
  hosts_->forget_key_of(2);
  launch("h1,h2", {}, kNeverEnding);
  expect_end(6, "Host key verification failed", 30);
  launch("h1,nowhere.invalid", {}, kNeverEnding);
  expect_end(6, "nowhere.invalid", 30);
}

TEST_F(MultiHostLaunch, NamesHostOfDeadRank) {
  launch("h1,h2", {"--max-restarts", "0"}, kNeverEnding);
  ASSERT_TRUE(program_->prints("step    7/"));
  kill(family_.rank(1), SIGKILL);
  expect_end(138, "cause   rank 1 on h2 (process ", 10);
}

TEST_F(MultiHostLaunch, EndsAllWhenAnAgentDies) {
  for (const int host : {1, 2}) {
    launch("h1,h2", {"--max-restarts", "0"}, kNeverEnding);
    ASSERT_TRUE(program_->prints("step    7/"));
    kill(hosts_->agent(host), SIGKILL);
    expect_end(138, "cause   the host h" + std::to_string(host) + " is lost: ", 10);
  }
}

TEST_F(MultiHostLaunch, EndsAllWhenSshDies) {
  launch("h1,h2", {"--max-restarts", "0"}, kNeverEnding);
  ASSERT_TRUE(program_->prints("step    7/"));
  pid_t ssh = -1;
  for (const auto& living : family_.living()) {
    if (living.find("ssh") != std::string::npos && living.find(" h2 ") != std::string::npos) ssh = std::stoi(living);
  }
  ASSERT_GT(ssh, 0) << ::testing::PrintToString(family_.living());
  kill(ssh, SIGKILL);
  expect_end(138, "cause   the host h2 is lost: ssh to it was killed by SIGKILL", 10);
}

TEST_F(MultiHostLaunch, EndsAllWhenLauncherDies) {
  launch("h1,h2", {}, kNeverEnding);
  ASSERT_TRUE(program_->prints("step    7/"));
  program_->signal(SIGKILL);
  expect_end(137, "", 10);
}

TEST_F(MultiHostLaunch, EndsBothSidesWhenLinkFails) {
  launch("h1,h2", {"--max-restarts", "0"}, kNeverEnding);
  ASSERT_TRUE(program_->prints("step    7/"));
  hosts_->set_link(2, false);
  expect_end(138, "cause   the host h2 is lost: no message from it for 15 s", 30);
}

TEST_F(MultiHostLaunch, EndsBitEqualAfterARestart) {
  const Settings settings{"train.max_steps=200", "checkpoint.interval=20"};
  launch("h1,h2", {}, settings);
  ASSERT_TRUE(program_->prints("step    50/"));
  kill(hosts_->agent(2), SIGKILL);
  ASSERT_TRUE(program_->prints("start 2  "));
  ASSERT_EQ(program_->wait().exit_code, 0);
  const std::string disturbed = run_;
  run_ = folder_ / "calm";
  launch("h1,h2", {}, settings);
  ASSERT_EQ(program_->wait().exit_code, 0);
  EXPECT_EQ(timeless_metrics(disturbed + "/metrics.jsonl"), timeless_metrics(run_ + "/metrics.jsonl"));
  EXPECT_EQ(read_file(disturbed + "/model.safetensors"), read_file(run_ + "/model.safetensors"));
}

TEST_F(MultiHostLaunch, UsesSamplesOnceAsHostsComeAndGo) {
  const Settings settings{"checkpoint.interval=50", "eval.interval=null"};
  Settings endless = settings, first_steps = settings;
  endless.push_back("train.max_steps=1000000");
  first_steps.push_back("train.max_steps=500");
  launch("h1,h2,h3", {"--nnodes", "2:3"}, endless);
  ASSERT_TRUE(program_->prints("step    120/"));
  hosts_->set_link(3, false);
  ASSERT_TRUE(program_->prints("2 ranks on h1:1, h2:1", 40));
  program_->forget_output();
  ASSERT_TRUE(program_->prints("step    "));
  hosts_->set_link(3, true);
  ASSERT_TRUE(program_->prints("a host is back", 40));
  ASSERT_TRUE(program_->prints("3 ranks on h1:1, h2:1, h3:1", 40));
  program_->forget_output();
  ASSERT_TRUE(program_->prints("step    "));
  program_->signal(SIGTERM);
  expect_end(143, "", 30);
  const Result audit = gputrain({"data", "audit", run_});
  EXPECT_EQ(audit.exit_code, 0) << audit.out << audit.err;
  const auto expected = losses_of(one_process(first_steps)), actual = losses_of(run_);
  ASSERT_EQ(expected.size(), 500U);
  ASSERT_GT(actual.size(), 120U);
  for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i)
    ASSERT_NEAR(actual[i], expected[i], 1e-6) << "step " << i + 1;
}

TEST_F(MultiHostLaunch, ContinuesWithoutAnnouncedHost) {
  CloudOf cloud(*hosts_, 3);
  metadata_ = (*cloud).url();
  const Settings settings{"train.max_steps=1000000", "eval.interval=null", "checkpoint.interval=null",
                          "checkpoint.notice.interval=1s"};
  launch("h1,h2,h3", {"--nnodes", "2:3", "--max-restarts", "0"}, settings);
  ASSERT_TRUE(program_->prints("step    7/"));
  (*cloud).announce(gputrain::testing::announcement("aws", 100));
  ASSERT_TRUE(program_->prints("h3 is about to be taken away: the run goes on with 2 hosts from step ", 40))
      << program_->wait(1).out;
  ASSERT_TRUE(program_->prints("2 ranks on h1:1, h2:1"));
  program_->forget_output();
  ASSERT_TRUE(program_->prints("step    "));
  (*cloud).announce(std::nullopt);
  kill(hosts_->agent(3), SIGKILL);  // the machine is gone, and another one has its name
  ASSERT_TRUE(program_->prints("3 ranks on h1:1, h2:1, h3:1", 60));
  program_->forget_output();
  ASSERT_TRUE(program_->prints("step    "));
  program_->signal(SIGTERM);
  expect_end(143, "", 30);
  EXPECT_EQ(gputrain({"data", "audit", run_}).exit_code, 0);
}

TEST_F(MultiHostLaunch, EndsWhenNeededHostIsAnnounced) {
  CloudOf cloud(*hosts_, 2);
  metadata_ = (*cloud).url();
  Settings settings = kNeverEnding;
  settings.push_back("checkpoint.notice.interval=1s");
  launch("h1,h2", {}, settings);
  ASSERT_TRUE(program_->prints("step    7/"));
  (*cloud).announce(gputrain::testing::announcement("aws", 100));
  expect_end(138, "announces", 40);
}

}  // namespace
}  // namespace gputrain::testing_support

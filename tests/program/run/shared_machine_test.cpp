// Runs beside other users, other runs, other servers, and in groups with limits.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/net/server.hpp"
#include "support/endless_run.hpp"
#include "support/needs.hpp"
#include "support/ports.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

TEST(FileSystemWithoutLocks, RefusesASecondProcessOfThisHost) {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> without{{"LD_PRELOAD", NO_LOCKS}};
  Program first(endless(folder), without);
  ASSERT_TRUE(first.prints("step    1/"));
  const Result second = Program(endless(folder), without).wait();
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(second.err, AllOf(HasSubstr("in use by process " + std::to_string(first.id())), Not(HasSubstr("\n2"))));
  first.signal(SIGKILL);
  first.wait();
  EXPECT_EQ(Program(endless(folder, {"--set", "train.max_steps=3"}), without).wait().exit_code, 0) << "its mark is old";
}

TEST(FileSystemWithoutLocks, TakesAnIdThatCameAgainForAnother) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "run");
  folder.write("run/lock", "process 1 on host here since 2026-03-01T12:00:00Z\n1 7 another-boot\n");
  const Result result = Program(endless(folder, {"--set", "train.max_steps=3"}), {{"LD_PRELOAD", NO_LOCKS}}).wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("does not support locks"));
}

TEST(FileSystemWithoutLocks, LetsTheFirstRunSeeThatAnotherHostTookTheFolder) {
  const TemporaryFolder folder;
  Program first(endless(folder), {{"LD_PRELOAD", NO_LOCKS}});
  ASSERT_TRUE(first.prints("step    1/"));
  std::ofstream(folder / "run/lock", std::ios::trunc) << "process 5 on host there since now\n5 7 another-boot\n";
  const Result result = first.wait(60);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("another run uses this run folder now"));
}

/// A run in a folder that another user may not enter.
class RunOfAnotherUser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    const std::string job = write_gpt_job(folder_);
    ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "runs/a"}).exit_code, 0);
    std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
    if (as_other({"version"}).exit_code != 0) GTEST_SKIP() << "another user cannot start the program here";
  }
  static Result as_other(std::vector<std::string> words) {
    std::vector<std::string> all{"setpriv",        "--reuid", "65534",     "--regid",      "65534",
                                 "--clear-groups", "env",     "HOME=/tmp", gputrain_path()};
    all.insert(all.end(), words.begin(), words.end());
    return Program(all).wait();
  }

  const TemporaryFolder folder_;
};

TEST_F(RunOfAnotherUser, IsDeniedByEveryVerb) {
  const std::string run = folder_ / "runs/a", step = run + "/ckpt/latest";
  const std::vector<std::vector<std::string>> commands{{"ctl", run, "status"},
                                                       {"ctl", run, "pause"},
                                                       {"top", run, "--once"},
                                                       {"compare", run, run},
                                                       {"data", "audit", run},
                                                       {"replay", run, "--step", "15"},
                                                       {"predict", run, "x.png"},
                                                       {"embed", run, "x.txt", "--output", "/tmp/never"},
                                                       {"init", run},
                                                       {"generate", run, "--prompt", "a"},
                                                       {"export", run, "/tmp/never", "--format", "hf"},
                                                       {"eval", run},
                                                       {"run", run},
                                                       {"ckpt", "ls", run},
                                                       {"ckpt", "verify", step},
                                                       {"ckpt", "prune", run, "--keep-last", "1"}};
  for (const std::string& closed : {run, folder_ / "runs"}) {
    std::filesystem::permissions(closed, std::filesystem::perms::owner_all);
    for (const auto& words : commands) {
      const Result result = as_other(words);
      EXPECT_EQ(result.exit_code, 6) << words[0] << ": " << result.err;
      EXPECT_THAT(result.err, AllOf(HasSubstr("ermission denied"), Not(HasSubstr("internal error"))))
          << words[0] << " " << words[1];
    }
  }
}

/// Runs the program with these files as its control groups.
class ControlGroups : public ::testing::Test {
 protected:
  void SetUp() override { GPUTRAIN_SKIP_FOR(testing::no_own_mounts()); }
  std::unique_ptr<Program> started(const std::vector<std::string>& words,
                                   const std::map<std::string, std::string>& environment = {}) const {
    std::vector<std::string> all{"unshare",
                                 "-m",
                                 "sh",
                                 "-c",
                                 "mount --bind " + (folder_ / "groups") + R"( /sys/fs/cgroup && exec "$@")",
                                 "sh",
                                 gputrain_path()};
    all.insert(all.end(), words.begin(), words.end());
    return std::make_unique<Program>(all, environment);
  }
  Result within(const std::vector<std::string>& words) const { return started(words)->wait(); }
  void limit_memory(const std::string& bytes) const {
    folder_.write("groups/memory.max", bytes);
    folder_.write("groups/memory.current", "1000000");
  }

  const TemporaryFolder folder_;
  const std::string job_ = write_gpt_job(folder_, "", "{max_steps: 2, global_batch_size: 8}");
};

TEST_F(ControlGroups, RefuseADryRunThatNeedsMoreMemory) {
  limit_memory("400000000");
  const Result fits = within({"run", job_, "--dry-run"});
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  const Result large = within({"run", job_, "--dry-run", "--set", "model.config.n_embd=2048"});
  EXPECT_EQ(large.exit_code, 6) << large.out;
  EXPECT_THAT(large.err, HasSubstr("or its container has 381 MiB for 1 rank"));
}

TEST_F(ControlGroups, RefuseADryRunOfRanksThatFitAloneOnly) {
  limit_memory("400000000");
  const std::vector<std::string> words{"run", job_, "--dry-run", "--set", "model.config.n_embd=768"};
  const Result alone = within(words);
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  std::vector<std::unique_ptr<Program>> ranks;
  const std::string port = std::to_string(gputrain::testing::free_port());
  for (const char* rank : {"0", "1"})
    ranks.push_back(started(words, {{"RANK", rank},
                                    {"LOCAL_RANK", rank},
                                    {"WORLD_SIZE", "2"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "127.0.0.1"},
                                    {"MASTER_PORT", port}}));
  for (const auto& rank : ranks) {
    const Result result = rank->wait();
    EXPECT_EQ(result.exit_code, 6) << result.err;
    EXPECT_THAT(result.err, HasSubstr("for 2 ranks"));
  }
}

TEST_F(ControlGroups, AreKnownToDoctor) {
  limit_memory("400000000");
  EXPECT_THAT(within({"doctor"}).out, HasSubstr("381 MiB allowed here"));
}

/// A server of something else, which answers everything alike.
Result top_of(const std::string& body) {
  const net::Server other(net::listen_on("127.0.0.1", 0),
                          [&](const net::Request&) { return net::Response{.body = body}; });
  return gputrain({"top", "127.0.0.1:" + std::to_string(other.port()), "--once"});
}

TEST(Top, RefusesOtherServers) {
  for (const char* body : {"<!doctype html><title>TensorBoard</title>", "{}", "[1]", R"({"values": {}})",
                           R"({"run_id": "a", "values": {}, "alerts": [1], "events": [], "points": 7})"}) {
    const Result result = top_of(body);
    EXPECT_EQ(result.exit_code, 6) << body << result.out;
    EXPECT_THAT(result.err, HasSubstr("no run of gputrain")) << body;
  }
}

/// Asks with raw bytes, under any host.
std::string answer_to(const std::string& port, const std::string& request) {
  const Result result = Program({"bash", "-c",
                                 "exec 3<>/dev/tcp/127.0.0.1/" + port + "; printf '" + request +
                                     "\\r\\nConnection: close\\r\\n\\r\\n' >&3; timeout 10 cat <&3"})
                            .wait();
  return result.out;
}

TEST(Page, AnswersUnderItsOwnNamesAlone) {
  const TemporaryFolder folder;
  const std::string port = std::to_string(gputrain::testing::free_port());
  Program program(endless(folder, {"--set", "log.metrics_port=" + port}));
  ASSERT_TRUE(program.prints("step    1"));
  for (const char* path : {"/", "/log", "/state", "/metrics"}) {
    const std::string get = std::string("GET ") + path + " HTTP/1.1\\r\\nHost: ";
    for (const auto& host : {"localhost:" + port, std::string("127.0.0.1"), "[::1]:" + port, std::string("LOCALHOST")})
      EXPECT_THAT(answer_to(port, get + host), HasSubstr("200 OK")) << host;
    for (const char* host : {"rebind.attacker.example", "127.0.0.1.attacker.example:80", "localhost.attacker.example"})
      EXPECT_THAT(answer_to(port, get + host), HasSubstr("403 Forbidden")) << host;
  }
  const std::string head = answer_to(port, "HEAD /metrics HTTP/1.1\\r\\nHost: localhost");
  EXPECT_THAT(head, AllOf(HasSubstr("200 OK"), HasSubstr("Content-Length: "), Not(HasSubstr("gputrain_"))));
}

TEST(Job, RefusesValidationDataWithMoreTokensOrClasses) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& model, const std::string& options, const std::string& other,
                           const std::string& role, int exit_code = 2) {
    const std::string job =
        folder.write("j.yaml", "schema: 1\nmodel: " + model + "\ndata: {train: {format: synthetic, samples: 64, " +
                                   options + "}, " + role + ": {format: synthetic, samples: 16, " + other +
                                   "}}\ntrain: {max_steps: 4, global_batch_size: 8}\n");
    const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
    EXPECT_EQ(result.exit_code, exit_code) << result.out;
    return result.err;
  };
  const std::string gpt = "{type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 8}}";
  EXPECT_THAT(refusal(gpt, "vocab_size: 64", "vocab_size: 200", "val"), HasSubstr("has 200 different tokens"));
  EXPECT_THAT(refusal(gpt, "vocab_size: 64", "vocab_size: 65", "test"), HasSubstr("data.test"));
  EXPECT_THAT(refusal("{type: mlp}", "num_classes: 4", "num_classes: 5", "val", 3),
              HasSubstr("of 5 classes, but those of data.train"));
}

}  // namespace
}  // namespace gputrain::testing_support

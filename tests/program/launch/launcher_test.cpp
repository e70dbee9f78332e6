#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/lines.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/launch/child.hpp"
#include "support/launched.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Launch, TrainsLikeOneProcess) {
  const TemporaryFolder folder;
  Launched two(folder, {}, {});
  const Result result = two.program().wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("2 ranks on localhost:2"), HasSubstr("  torch "), HasSubstr("done    20/20")));
  ASSERT_EQ(gputrain({"run", folder / "job.yaml", "--output-dir", folder / "one"}).exit_code, 0);
  const auto expected = losses_of(folder / "one"), actual = losses_of(two.run());
  ASSERT_EQ(actual.size(), 20U);
  for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(actual[i], expected.at(i), 1e-9);
  EXPECT_THAT(two.family().living(), IsEmpty());
}

TEST(Launch, FilesOutputOfEachRank) {
  const TemporaryFolder folder;
  Launched two(folder, {}, {"checkpoint.keep_last=1", "train.max_steps=3"});
  ASSERT_EQ(two.program().wait().exit_code, 0);
  EXPECT_THAT(read_file(two.run() + "/logs/start_1/rank_0000.log"), HasSubstr("done    3/3"));
  EXPECT_TRUE(fs::exists(two.run() + "/logs/start_1/rank_0001.log"));
}

TEST(Launch, CountsItsStartsAndTheRunItsAttempts) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 1}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run", "--set", "train.max_steps=3"}).exit_code, 0);
  for (const int start : {1, 2}) {
    const std::string number = std::to_string(start), attempt = std::to_string(start + 1);
    Launched two(folder, {}, {"train.max_steps=3"});
    const Result result = two.program().wait();
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("  start " + number + "  output " + two.run() + "/logs/start_" + number),
                                  HasSubstr("  attempt " + attempt)));
  }
}

TEST(Launch, LetsTwoJobsShareAHost) {
  const TemporaryFolder first_folder, second_folder;
  Launched first(first_folder, {}, {}), second(second_folder, {}, {});
  EXPECT_EQ(first.program().wait().exit_code, 0);
  EXPECT_EQ(second.program().wait().exit_code, 0);
}

TEST(Launch, ReportsHostProblemBeforeStartingRanks) {
  const TemporaryFolder folder;
  const std::string ssh = folder.write("bin/ssh", R"(#!/bin/bash
while [ "$1" != -- ]; do shift; done; shift 2
"$@" | sed -u 's/{"kind":"port","port":[0-9]*}/{"kind":"problem","text":"this host has no free port"}/'
)");
  fs::permissions(ssh, fs::perms::owner_all);
  const Result result =
      Program({gputrain_path(), "launch", "--hosts", "elsewhere:1,there:1", "run", write_gpt_job(folder)},
              {{"PATH", folder / "bin:" + std::getenv("PATH")}})
          .wait(30);
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: elsewhere: this host has no free port"));
}

TEST(Launch, DividesCoresAmongRanks) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const auto threads = [&](const Words& command) {
    const Result result = Program(command, {{"OMP_NUM_THREADS", ""}}).wait();
    std::smatch found;
    EXPECT_TRUE(std::regex_search(result.out, found, std::regex("  ([0-9]+) threads? \\(")))
        << result.out << result.err;
    return found.empty() ? 0 : std::stoi(found[1]);
  };
  const int alone = threads({gputrain_path(), "run", job, "--output-dir", folder / "one"});
  const int shared =
      threads({gputrain_path(), "launch", "--nproc-per-node", "2", "run", job, "--output-dir", folder / "two"});
  EXPECT_EQ(shared, std::max(1, alone / 2));
}

TEST(Launch, SetsJobVariablesBeforeLibrariesLoad) {
  const TemporaryFolder folder;
  Launched two(folder, {}, kEndless, "env: {GREETING: 'hello, \"$(world)\"', MY_TOKEN: hidden, NUMBER: 7}\n");
  ASSERT_TRUE(two.program().prints("step    5/"));
  for (const int rank : {0, 1}) {
    const std::string environ = read_file("/proc/" + std::to_string(two.family().rank(rank)) + "/environ");
    EXPECT_THAT(environ,
                AllOf(HasSubstr("GREETING=hello, \"$(world)\""), HasSubstr("MY_TOKEN=hidden"), HasSubstr("NUMBER=7")));
  }
  EXPECT_THAT(read_file(two.run() + "/job.resolved.yaml"),
              AllOf(HasSubstr("MY_TOKEN: \"***\""), Not(HasSubstr("hidden"))));
  two.program().signal(SIGTERM);
  EXPECT_EQ(two.program().wait().exit_code, 143);
}

TEST(Launch, PassesVariablesUpToSystemLimit) {
  const TemporaryFolder folder;
  std::string variables = "env:\n";
  for (int i = 0; i < 20; ++i) variables += "  V" + std::to_string(i) + ": '" + std::string(60'000, 'x') + "'\n";
  Launched two(folder, {}, {"train.max_steps=2"}, variables);
  const Result result = two.program().wait(60);
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(JobVariables, ApplyWithinSameProcess) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "env: {GREETING: hello}\nlog: {interval: 1}\n");
  const ProcessFamily family;
  Program program({gputrain_path(), "run", job, "--output-dir", folder / "run", "--set", "train.max_steps=1000000"},
                  family.environment());
  ASSERT_TRUE(program.prints("step    5/"));
  const auto living = family.living();
  ASSERT_EQ(living.size(), 1U);
  EXPECT_THAT(read_file("/proc/" + std::to_string(std::stoi(living[0])) + "/environ"), HasSubstr("GREETING=hello"));
  program.signal(SIGTERM);
  const Result result = program.wait();
  EXPECT_EQ(result.exit_code, 143);
}

TEST(JobVariables, RefuseThoseThatDefineARank) {
  const TemporaryFolder folder;
  const Result result = gputrain({"validate", write_gpt_job(folder, "env: {RANK: 1}\n")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("job.yaml:9:"));
}

TEST(Launch, RefusesHostileHostNames) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), trap = folder / "trap";
  for (const std::string& name :
       Words{"-oProxyCommand=touch " + trap, "a b", "$(touch " + trap + ")", "`touch " + trap + "`", "a;touch " + trap,
             "-l", "a|b", "x\ny", "", "@a", "u@-a", "a:0", "a:x"}) {
    const Result result = gputrain({"launch", "--hosts", name, "run", job});
    EXPECT_EQ(result.exit_code, 2) << name << result.out;
  }
  for (const std::string& name : Words{"-oProxyCommand=touch " + trap, "$(touch " + trap + ")"}) {
    const std::string file = folder.write("hosts", name + "\n");
    EXPECT_EQ(gputrain({"launch", "--hostfile", file, "run", job}).exit_code, 2) << name;
  }
  EXPECT_FALSE(fs::exists(trap));
}

// What a process inherits from its parent

TEST(InheritedState, KeepsCheckpointsIntactWithClosedStreams) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 1}\n"), run = folder / "run";
  Words command{"sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh", gputrain_path(), "run", job, "--output-dir", run};
  for (const char* setting :
       {"train.max_steps=12", "checkpoint.interval=1", "eval.interval=null", "model.config.n_embd=256"})
    command = command + Words{"--set", setting};
  EXPECT_EQ(Program(command).wait().exit_code, 0);
  EXPECT_THAT(read_file(run + "/ledger.jsonl"), Not(HasSubstr("save_failed")));
  EXPECT_EQ(gputrain({"ckpt", "verify", run}).exit_code, 0);
}

TEST(InheritedState, IsRefusedWithDeletedCurrentFolder) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), gone = folder / "gone";
  const Words in_gone{"sh", "-c", "mkdir \"$0\" && cd \"$0\" && rmdir \"$0\" && exec \"$@\"", gone, gputrain_path()};
  for (const Words& verb : {Words{"run"}, Words{"launch", "run"}}) {
    const Result result = Program(in_gone + verb + Words{job, "--output-dir", folder / "run"}).wait();
    EXPECT_EQ(result.exit_code, 6) << result.err;
    EXPECT_THAT(result.err, StartsWith("error: the current folder cannot be used"));
  }
  EXPECT_EQ(Program(in_gone + Words{"--version"}).wait().exit_code, 0);
}

TEST(InheritedState, HearsOfChildrenDespiteIgnoredSigchld) {
  const TemporaryFolder folder;
  const Result wrong = Program({"env", "--ignore-signal=CHLD", gputrain_path(), "launch", "--hosts", "nowhere.invalid",
                                "run", write_gpt_job(folder), "--set", "model.type=gtp"})
                           .wait(60);
  EXPECT_EQ(wrong.exit_code, 2) << wrong.err;
}

TEST(InheritedState, StopsRunDespiteBlockedSigterm) {
  const TemporaryFolder folder;
  Program program({"env", "--block-signal=TERM", gputrain_path(), "run", write_gpt_job(folder, "log: {interval: 1}\n"),
                   "--output-dir", folder / "run", "--set", "train.max_steps=1000000"});
  ASSERT_TRUE(program.prints("step    3/"));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(30).exit_code, 143);
}

TEST(InheritedState, StopsLauncherDespiteIgnoredSigterm) {
  const TemporaryFolder folder;
  Program program({"env", "--ignore-signal=TERM", gputrain_path(), "launch", "--nproc-per-node", "1", "run",
                   write_gpt_job(folder, "log: {interval: 1}\n"), "--output-dir", folder / "run", "--set",
                   "train.max_steps=1000000"});
  ASSERT_TRUE(program.prints("step    3/"));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(30).exit_code, 143);
}

// The launcher itself does not train

TEST(Launch, StartsWithoutLibTorch) {
  const TemporaryFolder folder;
  Launched two(folder, {}, kEndless);
  ASSERT_TRUE(two.program().prints("step    5/"));
  const auto maps = [](pid_t process) { return read_file("/proc/" + std::to_string(process) + "/maps"); };
  EXPECT_THAT(maps(two.program().id()), AllOf(HasSubstr("/bin/gputrain"), Not(HasSubstr("libtorch"))));
  EXPECT_THAT(maps(two.family().agent()), AllOf(HasSubstr("/bin/gputrain"), Not(HasSubstr("libtorch"))));
  EXPECT_THAT(maps(two.family().rank(1)), HasSubstr("libtorch"));
}

TEST(Launch, LeavesNoForeignFilesOpenInRanks) {
  const TemporaryFolder folder;
  Launched two(folder, {}, kEndless);
  ASSERT_TRUE(two.program().prints("step    5/"));
  const auto open_as = [](pid_t process, int number) {
    return fs::read_symlink("/proc/" + std::to_string(process) + "/fd/" + std::to_string(number)).string();
  };
  const pid_t launcher = two.program().id(), agent = two.family().agent(), rank = two.family().rank(1);
  const Words others{open_as(launcher, 1), open_as(launcher, 2),
                     open_as(agent, 0),    open_as(agent, 1),
                     open_as(agent, 2),    fs::canonical(two.run()) / "logs/start_1/rank_0000.log"};
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(rank) + "/fd")) {
    std::error_code closed;  // may close meanwhile
    EXPECT_THAT(others, Not(Contains(fs::read_symlink(entry, closed).string())));
  }
  two.program().signal(SIGTERM);
  EXPECT_EQ(two.program().wait(30).exit_code, 143);
}

TEST(Launch, ReservesMeetingPortForRankZero) {
  launch::Child agent({.argv = {gputrain_path(), "agent"}, .environment = {}, .has_input = true});
  LineWriter orders(agent.take_input(), 4096);
  LineReader answers(agent.take_output());
  orders.insist(R"({"kind": "find_port"})");
  int port = 0;
  while (port == 0 && !answers.is_at_end()) {
    Poll poll;
    poll.add(answers.descriptor());
    poll.wait();
    answers.read([&](std::string_view line) { port = nlohmann::json::parse(line).value("port", port); });
  }
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port)), .sin_addr = {}, .sin_zero = {}};
  const Descriptor stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(::bind(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(comm::ListeningSocket("127.0.0.1", static_cast<uint16_t>(port)).port(), port);
}

size_t times_in(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Launch, ReportsJobMistakeOnceAndLeavesNothing) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), deep = folder / "not/there";
  const auto launch = [&](const Words& settings) {
    return gputrain(Words{"launch", "--nproc-per-node", "3", "run", job, "--output-dir", deep} + settings);
  };
  const Result validated = gputrain({"validate", job, "--set", "model.type=gtp", "--set", "output_dir='" + deep + "'"});
  // Found by the ranks only; by the launcher too, which then also reports the ranks' error; or by the launcher before
  // it touches anything.
  for (const Words& more : {Words{}, Words{"--set", "device=gpu"}, Words{"--set", "checkpoint.resume=never"}}) {
    const Result result = launch(Words{"--set", "model.type=gtp"} + more);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(times_in(result.err, "model.type: no model is named 'gtp'"), 1U) << result.err;
    EXPECT_EQ(times_in(result.err, "cause"), 0U) << result.err;
    EXPECT_FALSE(fs::exists(folder / "not"));
    if (more.empty()) {
      EXPECT_EQ(result.err, validated.err);
    }
  }
  const Result far = gputrain({"launch", "--hosts", "nowhere.invalid", "run", job, "--set", "model.type=gtp"});
  EXPECT_EQ(far.exit_code, 2);
  EXPECT_EQ(times_in(far.err, "no model is named"), 1U) << far.err;
}

TEST(Launch, LeavesNothingForPathsThatGoUp) {
  const TemporaryFolder folder;
  const Result result = gputrain({"launch", "--nproc-per-node", "2", "run", write_gpt_job(folder), "--output-dir",
                                  folder / "runs/../x", "--set", "model.type=gtp"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_FALSE(fs::exists(folder / "runs"));
  EXPECT_FALSE(fs::exists(folder / "x"));
}

TEST(Launch, RefusesImpossibleFolderLikeRun) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), file = folder.write("file", "");
  for (const auto& [path, reason] : {std::pair(folder / std::string(300, 'x'), "File name too long"),
                                     std::pair(file, "Not a directory"), std::pair(file + "/x", "Not a directory")}) {
    const Words run{"run", job, "--output-dir", path};
    const Result alone = gputrain(run), launched = gputrain(Words{"launch", "--nproc-per-node", "2"} + run);
    EXPECT_EQ(alone.exit_code, 6);
    EXPECT_THAT(alone.err, HasSubstr("cannot use the run folder: " + std::string(reason)));
    EXPECT_EQ(launched.exit_code, 6);
    EXPECT_EQ(launched.err, alone.err);
  }
}

TEST(Launch, KeepsEarlierRunWhenJobIsWrong) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
  const std::string curve = read_file(run + "/metrics.jsonl");
  for (const std::string resume : {"never", "auto"}) {
    const Result result = gputrain({"launch", "--nproc-per-node", "2", "run", job, "--output-dir", run, "--set",
                                    "model.type=gtp", "--set", "checkpoint.resume=" + resume});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(read_file(run + "/metrics.jsonl"), curve);
    EXPECT_FALSE(fs::exists(run + ".1"));
    EXPECT_FALSE(fs::exists(run + "/logs/start_1"));
  }
}

TEST(Launch, LetsRanksReportTheirOwnMistakes) {
  const TemporaryFolder folder;
  // LAYERS exists only in the ranks' environment, which comes from the job.
  Launched two(folder, {}, {"model.config.n_layer=${env:LAYERS:-1}", "env.LAYERS=many"});
  const Result result = two.program().wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("model.config.n_layer must be a whole number"));
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Launch, ReportsMistakeOfAllRanksOnce) {
  const TemporaryFolder folder;
  const Result result = gputrain({"launch", "--nproc-per-node", "3", "run", write_gpt_job(folder), "--output-dir",
                                  folder / "run", "--set", "data.train.path=/nowhere"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(count_of(result.err, "/nowhere: no such file"), 1U) << result.err;
  EXPECT_EQ(count_of("\n" + result.err, "\nended   "), 1U) << result.err;  // first, or after the rank's own words
}

}  // namespace
}  // namespace gputrain::testing_support

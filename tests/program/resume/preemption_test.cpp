// Requests to stop or save, at any moment of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/endless_run.hpp"
#include "support/ports.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Request {
  int signal, exit_code;

  friend void PrintTo(const Request& it, std::ostream* to) { *to << sigabbrev_np(it.signal); }
};

// Each signal while training; at other moments two of them, a different pair each time.
const Request kTerm{SIGTERM, 143}, kHup{SIGHUP, 143}, kInt{SIGINT, 130}, kUsr1{SIGUSR1, 138};

TEST(StopSignal, SavesReachedStepWhileTraining) {
  for (const auto& [signal, exit_code] : {kTerm, kHup, kInt, kUsr1}) {
    const TemporaryFolder folder;
    Program program(endless(folder));
    ASSERT_TRUE(program.prints("step    20/"));
    program.signal(signal);
    const Result result = program.wait();
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    const auto saved = checkpoints(folder / "run");
    ASSERT_EQ(saved.size(), 1U);
    const int64_t step = summary(folder / "run")["step"];
    EXPECT_GE(step, 20);
    EXPECT_THAT(saved[0], HasSubstr(std::to_string(step)));
    EXPECT_EQ(summary(folder / "run")["status"], "stopped");
  }
}

/// Starts the program at its own terminal.
pid_t start_at_a_terminal(const std::vector<std::string>& arguments, int& terminal) {
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child != 0) return child;
  std::vector<char*> words;
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execv(words[0], words.data());
  std::_Exit(99);
}

/// The output of the program at its own terminal. Types `keys` once it has printed `cue`.
std::string typed_at_a_terminal(const std::vector<std::string>& arguments, const std::string& cue,
                                const std::string& keys) {
  int terminal = -1;
  const pid_t child = start_at_a_terminal(arguments, terminal);
  std::string said;
  bool is_typed = false;
  char part[4096];
  for (ssize_t got; (got = ::read(terminal, part, sizeof part)) > 0;) {
    said.append(part, static_cast<size_t>(got));
    if (is_typed || said.find(cue) == std::string::npos) continue;
    is_typed = ::write(terminal, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(terminal);
  return said + "exit " + std::to_string(WEXITSTATUS(status));
}

TEST(TerminalStop, SavesReachedStepWhenClosed) {
  const TemporaryFolder folder;
  int terminal = -1;
  const pid_t child = start_at_a_terminal(endless(folder), terminal);
  std::string said;
  char part[4096];
  for (ssize_t got;
       said.find(" 20/1,000,000") == std::string::npos && (got = ::read(terminal, part, sizeof part)) > 0;) {
    said.append(part, static_cast<size_t>(got));
  }
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 143) << said;
  EXPECT_EQ(checkpoints(folder / "run").size(), 1U);
}

TEST(TerminalStop, AnswersCtrlCAndSaysHowToGoOn) {
  const TemporaryFolder folder;
  const std::string said =
      typed_at_a_terminal(endless(folder, {"--set", "limits.max_duration=60s"}), " 20/1,000,000", "\x03");
  EXPECT_THAT(said, HasSubstr("Ctrl-C: finishing the step at hand, then saving; once more to stop at once"));
  EXPECT_THAT(said, HasSubstr("  # goes on from step "));
  EXPECT_THAT(said, ::testing::EndsWith("exit 130"));
}

/// A run that spends nearly all its time in evaluations, if the job evaluates after each step.
std::vector<std::string> evaluating(const std::string& job, const std::string& folder, int64_t steps) {
  const std::string length = "train.max_steps=" + std::to_string(steps);
  return {gputrain_path(),      "run",   job,   "--accept", "--output-dir", folder, "--set",
          "data.val.split=90%", "--set", length};
}

TEST(StopSignal, DefersRunningEvaluationToResume) {
  for (const auto& [signal, exit_code] : {kTerm, kInt}) {
    const TemporaryFolder folder;
    const std::string job = write_gpt_job(folder, "log: {interval: 1}\neval: {interval: 1, batch_size: 1}\n");
    const auto run = [&](const std::string& name, int64_t steps) { return evaluating(job, folder / name, steps); };
    Program program(run("parts", 1000));
    ASSERT_TRUE(program.prints("eval    2 "));
    program.signal(signal);
    const Result stopped = program.wait();
    EXPECT_EQ(stopped.exit_code, exit_code) << stopped.out << stopped.err;
    const int64_t steps = summary(folder / "parts")["step"].get<int64_t>() + 1;
    const Result resumed = Program(run("parts", steps)).wait(), whole = Program(run("whole", steps)).wait();
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_EQ(timeless_metrics(folder / "parts/metrics.jsonl"), timeless_metrics(folder / "whole/metrics.jsonl"));
    EXPECT_EQ(read_file(folder / "parts/model.safetensors"), read_file(folder / "whole/model.safetensors"));
  }
}

TEST(DeferredEvaluation, RunsBeforeTheNextStep) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 1}\neval: {interval: 1h}\n");
  const auto run = [&](int64_t steps, const std::string& set) {
    return std::vector<std::string>{
        gputrain_path(), "run",   job, "--accept", "--output-dir",
        folder / "run",  "--set", set, "--set",    "train.max_steps=" + std::to_string(steps)};
  };
  Program program(run(1'000'000, "eval.interval=1h"));
  ASSERT_TRUE(program.prints("step    20/"));
  program.signal(SIGTERM);
  ASSERT_EQ(program.wait().exit_code, 143);
  const int64_t step = summary(folder / "run")["step"];
  const Result resumed = Program(run(step + 1, "eval.interval=0.001s")).wait();
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("\neval    " + std::to_string(step) + " "));
}

TEST(DeferredEvaluation, RunsOnceAndIsSavedLikeAnyOther) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder,
                                        "log: {interval: 1}\neval: {interval: 1, batch_size: 1}\n"
                                        "checkpoint: {interval: 1000, keep_last: 9, keep_best: 1}\n");
  const auto run = [&](const std::string& name, int64_t steps) { return evaluating(job, folder / name, steps); };
  int64_t step = 0;
  const auto is_scored = [&](const std::string& name) {
    const std::string manifest = folder / (name + "/ckpt/step-0000000" + std::to_string(step) + "/manifest.json");
    return nlohmann::json::parse(read_file(manifest)).contains("score");
  };
  do {  // the evaluation may end before the signal arrives
    fs::remove_all(folder / "middle");
    Program program(run("middle", 1000));
    ASSERT_TRUE(program.prints("step    2/"));
    program.signal(SIGTERM);
    ASSERT_EQ(program.wait().exit_code, 143);
    step = summary(folder / "middle")["step"];
    ASSERT_LT(step, 10);
  } while (is_scored("middle"));
  fs::copy(folder / "middle", folder / "end", fs::copy_options::recursive);
  ASSERT_EQ(Program(run("middle", step + 1)).wait().exit_code, 0);
  EXPECT_TRUE(is_scored("middle"));
  const std::string evaluation = "eval    " + std::to_string(step) + " ";
  EXPECT_THAT(Program(run("end", step)).wait().out, HasSubstr(evaluation));
  EXPECT_TRUE(is_scored("end"));
  EXPECT_THAT(Program(run("end", step)).wait().out, ::testing::Not(HasSubstr(evaluation)));
}

TEST(StopSignal, SavesNothingBeforeFirstStep) {
  for (const auto& [signal, exit_code] : {kHup, kInt}) {
    const TemporaryFolder folder;
    Program program(
        endless(folder, {"--set", "eval.at_start=true", "--set", "data.val.split=90%", "--set", "eval.batch_size=1"}));
    ASSERT_TRUE(program.prints("resume  none"));  // evaluates now
    program.signal(signal);
    const Result result = program.wait();
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_TRUE(checkpoints(folder / "run").empty());
  }
}

/// A job that saves for much longer than it computes a step, caught while it writes its second checkpoint.
class WhileSaving {
 public:
  explicit WhileSaving(const TemporaryFolder& folder)
      : program_(endless(folder, {"--set", "model.config.n_embd=512", "--set", "checkpoint.interval=1"})),
        ckpt_(fs::path(folder / "run") / "ckpt") {
    while (!is_caught()) {
      if (!program_.is_running()) throw std::runtime_error("the run ended before it saved");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  Result end_by(int signal, int times = 1) {
    for (; times > 1; --times) {
      program_.signal(signal);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // signals that wait together are one
    }
    program_.signal(signal);
    return program_.wait();
  }

 private:
  bool is_caught() const {
    bool is_writing = false, has_one = false;
    std::error_code gone;  // folders come and go meanwhile
    for (const auto& entry : fs::directory_iterator(ckpt_, gone)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("step-")) continue;
      (name.ends_with(".partial") ? is_writing : has_one) = true;
    }
    return is_writing && has_one;
  }
  Program program_;
  fs::path ckpt_;
};

TEST(StopSignal, EndsWithNewestStepSavedWhileSaving) {
  for (const auto& [signal, exit_code] : {kTerm, kUsr1}) {
    const TemporaryFolder folder;
    const Result result = WhileSaving(folder).end_by(signal);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    const auto saved = checkpoints(folder / "run");
    ASSERT_FALSE(saved.empty());
    EXPECT_THAT(saved.back(), HasSubstr(std::to_string(summary(folder / "run")["step"].get<int64_t>())));
    EXPECT_EQ(gputrain({"ckpt", "verify", folder / "run"}).exit_code, 0);
  }
}

TEST(StopSignal, EndsAtOnceAtASecondInterrupt) {
  const TemporaryFolder folder;
  const Result result = WhileSaving(folder).end_by(SIGINT, 2);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("stopped at once, on request; what was not yet saved is lost"));
  EXPECT_EQ(gputrain({"ckpt", "verify", folder / "run"}).exit_code, 0);
}

TEST(Saving, KeepsEarlierCheckpointWhenKilled) {
  const TemporaryFolder folder;
  EXPECT_EQ(WhileSaving(folder).end_by(SIGKILL).exit_code, 137);
  const Result verified = gputrain({"ckpt", "verify", folder / "run"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
}

TEST(Saving, AdaptsAutomaticIntervalToKills) {
  const TemporaryFolder folder;
  const auto run = endless(folder, {"--set", "checkpoint.interval=auto"});
  Program first(run);
  ASSERT_TRUE(first.prints("save auto, first after 10s (work is lost once in 1d0h, presumed)"));
  ASSERT_TRUE(first.prints("save    every ", 60));
  first.signal(SIGKILL);
  first.wait();
  ASSERT_FALSE(checkpoints(folder / "run").empty());  // a busy machine may save again before the kill
  Program second(run);
  ASSERT_TRUE(second.prints("resume  step "));
  EXPECT_TRUE(second.prints("1 loss in "));
}

TEST(Saving, ReportsAndCountsStallsWhenTooFrequent) {
  const TemporaryFolder folder;
  const Result result =
      Program(endless(folder, {"--set", "checkpoint.interval=1", "--set", "limits.max_duration=5s"})).wait();
  EXPECT_EQ(result.exit_code, 138);
  EXPECT_THAT(result.err, HasSubstr("saves come faster than they are written: training has stood still for 1."));
  double stall_seconds = 0;
  std::istringstream ledger(read_file(folder / "run/ledger.jsonl"));
  for (std::string line; std::getline(ledger, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (entry["kind"] == "checkpoint") stall_seconds += entry["stall_seconds"].get<double>();
  }
  EXPECT_GT(stall_seconds, 1);
}

TEST(Saving, SavesLastStepOnce) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 10}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run", "--set", "eval.interval=10"}).exit_code, 0);
  std::vector<int64_t> steps;
  std::istringstream ledger(read_file(folder / "run/ledger.jsonl"));
  for (std::string line; std::getline(ledger, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (entry["kind"] == "checkpoint") steps.push_back(entry["step"].get<int64_t>());
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(10, 20));
}

TEST(Saving, SavesStepsToKeepForever) {
  const TemporaryFolder folder;
  const std::string job =
      write_gpt_job(folder, "checkpoint: {interval: null, keep_last: 1, keep_best: 0, keep_every: 6}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  EXPECT_THAT(checkpoints(folder / "run"),
              ::testing::ElementsAre("step-00000006", "step-00000012", "step-00000018", "step-00000020"));
}

TEST(Saving, ReportsRemedyOnceWhenLastSaveFails) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "run");
  fs::create_directory_symlink("/proc", folder / "run/ckpt");  // a place that never has room
  const Result result =
      gputrain({"run", write_gpt_job(folder, "checkpoint: {interval: null}\n"), "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 5);
  const size_t error = result.err.find("error: cannot save: " + folder / "run/ckpt: no room");
  ASSERT_NE(error, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("try:", error), result.err.rfind("try:")) << result.err;
}

TEST(Saving, EndsTheRunAfterFailuresInARow) {
  const TemporaryFolder folder;
  auto arguments = endless(folder, {"--set", "checkpoint.interval=1", "--set", "checkpoint.max_save_failures=2",
                                    "--set", "log.interval=1000", "--set", "train.max_steps=300"});
  // No file may grow beyond 32 KiB, which the weights need, and the log does not.
  const std::vector<std::string> limited{"sh", "-c", R"(ulimit -f 64; exec "$@")", "sh"};
  arguments.insert(arguments.begin(), limited.begin(), limited.end());
  const Result result = Program(arguments).wait();
  EXPECT_EQ(result.exit_code, 5) << result.out;
  EXPECT_THAT(result.err, HasSubstr("(failure 2 of 2 in a row)"));
  EXPECT_THAT(result.err, HasSubstr("error: cannot save: "));
  EXPECT_LT(summary(folder / "run")["step"], 300) << "not only its last save, of which one failure is enough";
}

TEST(Saving, IgnoresAFolderNamedSave) {
  const TemporaryFolder folder;
  folder.write("run/SAVE/full", "");
  Program program(endless(folder));
  ASSERT_TRUE(program.prints("step    20/"));
  EXPECT_TRUE(checkpoints(folder / "run").empty());
}

TEST(Saving, SavesOnSigusr2OrFileAndContinues) {
  const TemporaryFolder folder;
  Program program(endless(folder));
  ASSERT_TRUE(program.prints("step    20/"));
  program.signal(SIGUSR2);
  ASSERT_TRUE(program.prints("on request"));
  EXPECT_EQ(checkpoints(folder / "run").size(), 1U);
  program.forget_output();
  folder.write("run/SAVE", "");
  ASSERT_TRUE(program.prints("on request"));
  EXPECT_EQ(checkpoints(folder / "run").size(), 2U);
  EXPECT_FALSE(fs::exists(folder / "run/SAVE"));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 143);
}

TEST(StopSignal, LeavesAtOnceWhileAwaitingRanks) {
  for (const auto& [signal, exit_code] : {kUsr1, kInt}) {
    const TemporaryFolder folder;
    const int port = ::gputrain::testing::free_port();
    Program program({gputrain_path(), "run", write_gpt_job(folder), "--output-dir", folder / "run"},
                    {{"RANK", "0"},
                     {"LOCAL_RANK", "0"},
                     {"WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", std::to_string(port)}});
    ASSERT_TRUE(::gputrain::testing::becomes_open(port));
    program.signal(signal);
    const Result result = program.wait(10);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_THAT(result.err, HasSubstr("stopped at once"));
  }
}

}  // namespace
}  // namespace gputrain::testing_support

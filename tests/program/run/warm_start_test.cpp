// A start of a copy (support/warm_start.hpp) does what a start from disk does.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/endless_run.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::string> kWarm;

/// Makes warm starts possible where the variable of the night's tests forbids them.
class WarmStart : public ::testing::Test {
 protected:
  WarmStart() {
    if (const char* value = std::getenv(kName)) forbidden_ = value;
    ::unsetenv(kName);
    ::setenv("GPUTRAIN_TEST_WORD", "two words", 1);
  }
  ~WarmStart() override {
    if (forbidden_) ::setenv(kName, forbidden_->c_str(), 1);
    ::unsetenv("GPUTRAIN_TEST_WORD");
  }
  void SetUp() override {
    Program program(endless(folder_), kWarm);
    ASSERT_TRUE(program.prints("step "));
    if (read_file(fs::path("/proc") / std::to_string(program.id()) / "cmdline").find("run") != std::string::npos)
      GTEST_SKIP() << "not possible here: no process of the tests can be copied";
    program.signal(SIGKILL);
    EXPECT_EQ(program.wait().exit_code, 137);
    fs::remove_all(folder_ / "run");
  }

  const TemporaryFolder folder_;

 private:
  static constexpr const char* kName = "GPUTRAIN_COLD_STARTS";
  std::optional<std::string> forbidden_;
};

std::string without_numbers(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(pipe:\[[0-9]+\]|gputrain_program_\w+)"), "*");
}

/// What the system tells of a process, apart from its number, its times and its memory.
std::set<std::string> facts(pid_t id) {
  const fs::path process = fs::path("/proc") / std::to_string(id);
  std::set<std::string> found{read_file(process / "limits"), "oom_score_adj " + read_file(process / "oom_score_adj"),
                              "group " + std::to_string(::getpgid(id)), "session " + std::to_string(::getsid(id)),
                              "nice " + std::to_string(::getpriority(PRIO_PROCESS, static_cast<id_t>(id)))};
  for (const char* link : {"cwd", "exe", "root", "ns/mnt", "ns/net", "ns/pid", "ns/user", "fd/0", "fd/1", "fd/2"})
    found.insert(without_numbers(link + (" " + fs::read_symlink(process / link).string())));
  const std::regex lasting("(PPid|Umask|Uid|Gid|Groups|Sig...|ShdPnd|Cap...|NoNewPrivs|Seccomp|Cpus_allowed):.*");
  std::istringstream status(read_file(process / "status"));
  for (std::string line; std::getline(status, line);)
    if (std::regex_match(line, lasting)) found.insert(line);
  return found;
}

TEST_F(WarmStart, TrainsTheSame) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n");
  const Result warm = gputrain({"run", job, "--output-dir", folder_ / "warm"}, kWarm);
  const Result cold = gputrain({"run", job, "--output-dir", folder_ / "cold"}, kFromDisk);
  EXPECT_EQ(warm.exit_code, 0) << warm.err;
  EXPECT_EQ(cold.exit_code, 0) << cold.err;
  EXPECT_EQ(timeless_metrics(folder_ / "warm/metrics.jsonl"), timeless_metrics(folder_ / "cold/metrics.jsonl"));
  EXPECT_EQ(read_file(folder_ / "warm/model.safetensors"), read_file(folder_ / "cold/model.safetensors"));
}

TEST_F(WarmStart, HasThePlaceStreamsRightsAndSignalsOfAStartFromDisk) {
  std::set<std::string> of_one;
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  for (const auto& way : {kWarm, kFromDisk}) {
    Program program(endless(folder_), way);
    fs::current_path(before);
    EXPECT_TRUE(program.prints("step    3/"));
    if (of_one.empty())
      of_one = facts(program.id());
    else
      EXPECT_EQ(facts(program.id()), of_one);
    program.signal(SIGTERM);
    const Result result = program.wait();
    EXPECT_EQ(result.exit_code, 143) << result.err;
    fs::remove_all(folder_ / "run");
    fs::current_path(folder_.path());
  }
  fs::current_path(before);
}

TEST_F(WarmStart, HasTheWordsAndVariablesOfAStartFromDisk) {
  const std::string job = write_gpt_job(folder_);
  const std::vector<std::vector<std::string>> commands{
      {"describe", "optimizer", "adamw"},
      {"run", "a file\nof two lines", ""},
      {"run", job, "--dry-run", "--output-dir", folder_ / "run", "--set", "name=${env:GPUTRAIN_TEST_WORD}"},
      {"run", job, "--dry-run", "--set", "optimizer.lr=${env:GPUTRAIN_TEST_WORD}"},
      {"run", job, "--dry-run", "--set", "optimizer.lr=${env:GPUTRAIN_TEST_NO_WORD}"}};
  for (const auto& command : commands) {
    const Result warm = gputrain(command, kWarm), cold = gputrain(command, kFromDisk);
    EXPECT_EQ(warm.exit_code, cold.exit_code) << command.back();
    EXPECT_EQ(warm.out, cold.out);
    EXPECT_EQ(warm.err, cold.err);
  }
  EXPECT_THAT(gputrain(commands[3], kWarm).err, ::testing::HasSubstr("two words"));
}

}  // namespace
}  // namespace gputrain::testing_support

#include "../../src/launch/agent/rank_process.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace gputrain::launch {
namespace {

/// Makes every file write fail, like a full disk, until destroyed.
class FullDisk {
 public:
  FullDisk() {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit nothing{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &nothing);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

void read_until(RankProcess& rank, const std::string& wanted) {
  for (bool has_come = false; !has_come;) {
    Poll poll;
    rank.add_to(poll);
    poll.wait();
    rank.read([&](std::string_view line, bool) { has_come = has_come || line == wanted; });
  }
}

RankEnd end_of(const std::string& script) {
  RankProcess rank(0, {.argv = {"/bin/sh", "-c", script}, .environment = {}}, "/dev/null");
  std::optional<ProcessStatus> status;
  while (!status) status = rank.look([](std::string_view, bool) {});
  return rank.end(*status);
}

TEST(RankProcess, DetectsErrorOnlyAtLineStartOfStderr) {
  EXPECT_TRUE(end_of("echo 'error: rank 1 is gone' >&2; for i in $(seq 100); do echo more >&2; done").tells_error);
  EXPECT_TRUE(end_of("echo 'stopped at once, on request; nothing was saved' >&2").tells_error);
  EXPECT_FALSE(end_of("echo 'error: said by a model'; echo 'warning: no error: here' >&2").tells_error);
}

TEST(RankProcess, LeavesHostOnANoticeToMakeWay) {
  EXPECT_TRUE(end_of("echo 'warning: AWS announces terminate in 99 s: the run saves and makes way' >&2").leaves_host);
  EXPECT_FALSE(end_of("echo 'warning: Google announces terminate in 3599 s' >&2").leaves_host);
}

TEST(RankProcess, LogsAgainOnceFullDiskHasRoom) {
  std::string pattern = (std::filesystem::temp_directory_path() / "gputrain_test_XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path folder = pattern, log = folder / "rank_0000.log", gate = folder / "gate";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  const std::string script = "echo first; read line < \"$0\"; echo second";
  RankProcess rank(0, {.argv = {"/bin/sh", "-c", script, gate}, .environment = {}}, log);
  {
    const FullDisk full;
    read_until(rank, "first");
  }
  std::ofstream(gate) << "on\n";
  read_until(rank, "second");
  std::ifstream file(log);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "second\n");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gputrain::launch

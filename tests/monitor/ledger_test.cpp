#include "gputrain/monitor/ledger.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/monitor/summary.hpp"

static bool syncs_fail = false;

/// Overrides the C library's fsync().
extern "C" __attribute__((visibility("default"))) int fsync(int descriptor) {
  if (!syncs_fail) return static_cast<int>(::syscall(SYS_fsync, descriptor));
  errno = EIO;
  return -1;
}

namespace gputrain::monitor {
namespace {

class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() { std::filesystem::create_directories(folder_); }
  ~LedgerTest() override { std::filesystem::remove_all(folder_); }

  void write(int lines) const {
    Ledger ledger(path_);
    for (int i = 0; i < lines; ++i) ledger.append("checkpoint", {{"step", i}});
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  void rewrite(const std::vector<std::string>& lines) const {
    std::ofstream file(path_, std::ios::trunc);
    for (const std::string& line : lines) file << line << "\n";
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("gputrain_ledger_" + std::to_string(::getpid()));
  const std::filesystem::path path_ = folder_ / "ledger.jsonl";
};

TEST_F(LedgerTest, ContinuesOneUnbrokenChain) {
  write(3);
  write(2);
  const LedgerContent content = read_ledger(path_);
  EXPECT_EQ(content.lines.size(), 5U);
  EXPECT_TRUE(content.problems.empty());
  EXPECT_EQ(content.lines[2]["step"], 2);
  EXPECT_EQ(content.lines[2]["kind"], "checkpoint");
}

// A changed chain formula would report every ledger of an earlier version as changed.
TEST_F(LedgerTest, VerifiesChainOfEarlierVersions) {
  rewrite({R"({"chain":"0148bee34b5f5868aa21ff0ba9df2486","kind":"start","time":1.5,"where":"/data/café"})",
           R"({"chain":"a12d5e2ea5a5cb0d69a7c975f41091cb","kind":"end","time":2.0})"});
  EXPECT_TRUE(read_ledger(path_).problems.empty());
}

TEST_F(LedgerTest, ShowsLineChangedRemovedOrMoved) {
  write(4);
  const auto good = lines();
  auto changed = good;
  changed[1].replace(changed[1].find("\"step\":1"), 8, "\"step\":7");
  rewrite(changed);
  EXPECT_EQ(read_ledger(path_).problems,
            (std::vector<std::string>{"line 2: was changed, or a line before it is missing"}));
  rewrite({good[0], good[2], good[3]});
  EXPECT_EQ(read_ledger(path_).problems.size(), 1U);
  rewrite({good[0], good[2], good[1], good[3]});
  EXPECT_EQ(read_ledger(path_).problems.size(), 3U);
  rewrite(good);
  EXPECT_TRUE(read_ledger(path_).problems.empty());
}

TEST_F(LedgerTest, DropsHalfLineOfKilledProcess) {
  write(2);
  std::ofstream(path_, std::ios::app) << "{\"kind\":\"che";
  EXPECT_EQ(read_ledger(path_).lines.size(), 2U);
  EXPECT_TRUE(read_ledger(path_).problems.empty());
  write(1);
  const LedgerContent content = read_ledger(path_);
  EXPECT_EQ(content.lines.size(), 3U);
  EXPECT_TRUE(content.problems.empty());
}

TEST_F(LedgerTest, ContinuesAfterUnchainedLineShowingBreak) {
  write(1);
  std::ofstream(path_, std::ios::app) << "{\"kind\":\"end\",\"chain\":7}\n";
  write(2);
  const LedgerContent content = read_ledger(path_);
  EXPECT_EQ(content.lines.size(), 4U);
  ASSERT_EQ(content.problems.size(), 1U);
  EXPECT_EQ(content.problems[0].substr(0, 7), "line 2:");
}

TEST_F(LedgerTest, ReadsAnyBytesSafely) {
  std::ofstream(path_) << "\n[]\n{\"kind\":3}\n\xff\xfe{\n" << std::string(100000, '[') << "\n";
  const LedgerContent content = read_ledger(path_);
  EXPECT_TRUE(content.lines.empty());
  EXPECT_EQ(content.problems.size(), 5U);
  EXPECT_TRUE(read_ledger(folder_ / "absent").lines.empty());
}

TEST_F(LedgerTest, RefusesDeepLines) {
  const std::string deep = R"({"kind":"x","a":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}\n";
  std::ofstream(path_) << deep << deep;
  EXPECT_EQ(read_ledger(path_).problems.size(), 2U);
  write(1);
  EXPECT_EQ(read_ledger(path_).lines.size(), 1U);
}

TEST_F(LedgerTest, TakesBackLineWhenSyncFails) {
  Ledger ledger(path_);
  for (const bool fails : {false, true, false}) {
    syncs_fail = fails;
    ledger.append("checkpoint", {});
  }
  const LedgerContent content = read_ledger(path_);
  EXPECT_EQ(content.lines.size(), 2U);
  EXPECT_TRUE(content.problems.empty());
}

TEST_F(LedgerTest, ReportsReadErrors) {
  std::filesystem::create_directory(path_);  // can be opened but not read
  EXPECT_THROW(Ledger{path_}, Error);
  EXPECT_THROW(read_ledger(path_), Error);
}

TEST_F(LedgerTest, AcceptsTextThatIsNotUtf8) {
  Ledger(path_).append("end", {{"reason", "/data/caf\xe9/1.jpg: neither JPEG nor PNG"}});
  write(1);
  const LedgerContent content = read_ledger(path_);
  ASSERT_EQ(content.lines.size(), 2U);
  EXPECT_TRUE(content.problems.empty());
  EXPECT_EQ(content.lines[0]["reason"], "/data/caf\uFFFD/1.jpg: neither JPEG nor PNG");
}

TEST_F(LedgerTest, AcceptsTextThatIsNotUtf8InSummary) {
  write_summary(folder_ / "summary.json", {.run_id = "x", .reason = "/data/caf\xe9/1.jpg: neither JPEG nor PNG"});
  std::ifstream file(folder_ / "summary.json");
  EXPECT_EQ(nlohmann::json::parse(file)["reason"], "/data/caf\uFFFD/1.jpg: neither JPEG nor PNG");
}

}  // namespace
}  // namespace gputrain::monitor

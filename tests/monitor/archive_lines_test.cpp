#include "gputrain/monitor/archive_lines.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::monitor {
namespace {

class AbandonedLinesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "abandonedXXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ / "rank_0000.log";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  static std::string read(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  std::string log() const { return read(path_); }
  std::string left() const { return read(path_.string() + ".left"); }

  std::filesystem::path folder_, path_;
};

std::string stamped(const std::string& message, const std::string& level = "info") {
  return "2026-03-01T12:00:00.123 " + level + " " + message + "\n";
}

TEST_F(AbandonedLinesTest, CutsRetakenStepsAndKeepsTheRest) {
  const std::string page = stamped("gputrain 0.1.0  run x"), warning = stamped("step    9 is a word here", "warning");
  const std::string before = stamped("step    1,000/2,000 50% loss 1.2") + stamped("eval    1,000 val/loss 1.3");
  const std::string after = stamped("step    1,001/2,000 loss 1.1") + stamped("eval    1,500 val/loss 1.2");
  write(page + before + after + stamped("out of memory", "error"));
  EXPECT_EQ(truncate_log(path_, 1000, 1000), 2);
  EXPECT_EQ(log(), page + before + stamped("out of memory", "error"));
  EXPECT_EQ(left(), after);
  EXPECT_EQ(truncate_log(path_, 1000, 1000), 0);
  write(log() + after);
  EXPECT_EQ(truncate_log(path_, 1000, 999), 3);  // the checkpoint was saved before the evaluation of its step
  EXPECT_EQ(left(), after + stamped("eval    1,000 val/loss 1.3") + after);
}

TEST_F(AbandonedLinesTest, KeepsTextThatLooksLikeAStep) {
  const std::string text = stamped("sample  temperature 0.8") + "step    900/1,000 says the model\n" +
                           stamped("steps   900") + stamped("step    of no number") +
                           stamped("step    99999999999999999999/1");
  write(text);
  EXPECT_EQ(truncate_log(path_, 10, 10), 0);
  EXPECT_EQ(log(), text);
}

TEST_F(AbandonedLinesTest, DoesNothingWithoutALog) {
  EXPECT_EQ(truncate_log(path_, 10, 10), 0);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(AbandonedLinesTest, ChangesNothingWhenCutLinesCannotBeKept) {
  const std::string text = stamped("step    20/30 loss 1");
  write(text);
  std::filesystem::create_directory(path_.string() + ".left");
  EXPECT_THROW(truncate_log(path_, 10, 10), Error);
  EXPECT_EQ(log(), text);
}

TEST_F(AbandonedLinesTest, ReportsReadErrors) {
  std::filesystem::create_directory(path_);  // can be opened but not read
  EXPECT_THROW(truncate_log(path_, 10, 10), Error);
}

}  // namespace
}  // namespace gputrain::monitor

// The ckpt subcommands, on damaged checkpoints of a real run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "gputrain/inspect/tensor_difference.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kFiveCheckpoints = "checkpoint: {interval: 4, keep_last: 9}\neval: {interval: 4}\n";

/// Checkpoints of steps 4, 8, 12, 16 and 20, all with scores; trained once for all tests and copied for each.
class Ckpt : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    trained_ = new TemporaryFolder;
    const std::string job = write_gpt_job(*trained_, kFiveCheckpoints);
    ASSERT_EQ(gputrain({"run", job, "--output-dir", *trained_ / "run"}).exit_code, 0);
  }
  static void TearDownTestSuite() {
    delete trained_;
    trained_ = nullptr;
  }
  void SetUp() override {
    fs::copy(trained_->path() / "run", run_, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }

  fs::path in_ckpt(const std::string& below) const { return fs::path(run_) / "ckpt" / below; }
  void truncate(int step) const { fs::resize_file(in_ckpt(name(step)) / "model.safetensors", 100); }
  /// Flips a bit, which only a hash check finds.
  void flip(int step, const std::string& file = "model.safetensors") const {
    std::fstream stream(in_ckpt(name(step)) / file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-1, std::ios::end);
    const char last = static_cast<char>(stream.get() ^ 1);
    stream.seekp(-1, std::ios::end);
    stream.put(last);
  }
  /// Leaves a folder that a resume set aside, and one of a killed save.
  void leave_remains() const {
    fs::copy(in_ckpt(name(12)), in_ckpt("step-00000014.bad"));
    fs::copy(in_ckpt(name(12)), in_ckpt("step-00000024.partial"));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(in_ckpt(""))) {
      if (!entry.is_symlink()) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  static std::string name(int step) { return (step < 10 ? "step-0000000" : "step-000000") + std::to_string(step); }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run";

 private:
  static inline TemporaryFolder* trained_ = nullptr;
};

/// Runs `gputrain ckpt ... --json`; all of stdout must be the document.
nlohmann::json ckpt_json(std::vector<std::string> arguments, int exit_code) {
  arguments.insert(arguments.begin(), "ckpt");
  arguments.emplace_back("--json");
  const Result result = gputrain(arguments);
  EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
  return nlohmann::json::parse(result.out);
}

Result ckpt(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "ckpt");
  return gputrain(arguments);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> strings_at(const nlohmann::json& list, const char* key) {
  std::vector<std::string> strings;
  for (const auto& item : list) strings.push_back(item.at(key));
  return strings;
}

TEST_F(Ckpt, LsListsScoresMarksAndTotal) {
  const Result result = ckpt({"ls", run_});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 7U) << result.out;
  EXPECT_THAT(lines[1], HasSubstr("   4  "));
  EXPECT_THAT(lines[5], HasSubstr("val/loss 2."));
  EXPECT_THAT(lines[5], EndsWith("latest, best"));
  EXPECT_THAT(lines[6], HasSubstr("5 checkpoints, "));
  EXPECT_THAT(lines[6], HasSubstr(" MiB in "));
}

TEST_F(Ckpt, LsTellsTornSetAsideAndPartialApart) {
  truncate(20);
  leave_remains();
  const auto document = ckpt_json({"ls", run_}, 0);
  const auto& checkpoints = document["checkpoints"];
  EXPECT_THAT(strings_at(checkpoints, "name"), ElementsAre(name(4), name(8), name(12), name(16), name(20)));
  EXPECT_THAT(checkpoints[4]["problem"].get<std::string>(), HasSubstr("model.safetensors: has 100 bytes"));
  EXPECT_EQ(checkpoints[4]["latest"], false);
  EXPECT_EQ(checkpoints[3]["latest"], true);
  EXPECT_EQ(checkpoints[3]["best"], true);
  EXPECT_EQ(checkpoints[3]["problem"], nullptr);
  EXPECT_THAT(strings_at(document["set_aside"], "name"), ElementsAre("step-00000014.bad"));
  EXPECT_THAT(strings_at(document["left_over"], "name"), ElementsAre("step-00000024.partial"));
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(in_ckpt(""))) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  EXPECT_EQ(document["bytes"], bytes);
  const Result table = ckpt({"ls", in_ckpt("").string()});
  EXPECT_THAT(table.out, HasSubstr("bad: model.safetensors: has 100 bytes"));
  EXPECT_THAT(table.out, HasSubstr("5 checkpoints, 1 set aside, 1 half written, "));
}

TEST_F(Ckpt, VerifyFindsFlippedBitLsMisses) {
  flip(12, "optimizer.safetensors");
  EXPECT_THAT(ckpt({"ls", run_}).out, Not(HasSubstr("bad: ")));
  const Result result = ckpt({"verify", run_});
  EXPECT_EQ(result.exit_code, 5);
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_THAT(lines[2], HasSubstr("step-00000012  optimizer.safetensors"));
  EXPECT_THAT(lines[2], Not(EndsWith("ok")));
  for (const size_t good : {0U, 1U, 3U, 4U}) EXPECT_THAT(lines[good], EndsWith("  ok"));
  const auto document = ckpt_json({"verify", run_}, 5);
  EXPECT_EQ(document["ok"], false);
  EXPECT_EQ(document["checkpoints"][2]["ok"], false);
  EXPECT_EQ(document["checkpoints"][3]["problem"], nullptr);
}

TEST_F(Ckpt, VerifyChecksOnlyTheNamedCheckpoint) {
  flip(12);
  EXPECT_EQ(ckpt({"verify", in_ckpt(name(12))}).exit_code, 5);
  EXPECT_EQ(ckpt({"verify", in_ckpt(name(16))}).exit_code, 0);
  EXPECT_EQ(ckpt({"verify", in_ckpt("latest")}).exit_code, 0);
  fs::remove(in_ckpt(name(16)) / "manifest.json");
  EXPECT_THAT(ckpt({"verify", in_ckpt(name(16))}).out, HasSubstr("no manifest"));
  fs::rename(in_ckpt(name(8)), in_ckpt("step-00000009"));
  EXPECT_THAT(ckpt({"verify", in_ckpt("step-00000009")}).out, HasSubstr("its manifest is that of step 8"));
}

TEST_F(Ckpt, VerifyExits5WithoutCheckpoints) {
  for (const int step : {4, 8, 12, 16, 20}) fs::remove_all(in_ckpt(name(step)));
  const Result result = ckpt({"verify", run_});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.out, HasSubstr("no checkpoints"));
  EXPECT_THAT(ckpt_json({"verify", run_}, 5)["checkpoints"], IsEmpty());
  EXPECT_EQ(ckpt({"ls", run_}).exit_code, 0);
}

TEST_F(Ckpt, PruneKeepsEachCountAndRemovesPartials) {
  leave_remains();
  const std::vector<std::string> arguments{"prune", run_, "--keep-last", "1", "--keep-every", "8"};
  auto dry = arguments;
  dry.emplace_back("--dry-run");
  const auto before = names();
  const auto planned = ckpt_json(dry, 0);
  EXPECT_EQ(names(), before);
  const auto done = ckpt_json(arguments, 0);
  EXPECT_EQ(strings_at(done["removed"], "name"), strings_at(planned["removed"], "name"));
  EXPECT_THAT(strings_at(done["removed"], "name"), ElementsAre(name(4), name(12), "step-00000024.partial"));
  EXPECT_GT(done["bytes_freed"], 100000);
  EXPECT_EQ(done["bytes_freed"], planned["bytes_freed"]);
  EXPECT_THAT(names(), ElementsAre(name(8), "step-00000014.bad", name(16), name(20)));
  EXPECT_EQ(ckpt({"prune", run_, "--keep-last", "1", "--set-aside"}).exit_code, 0);
  EXPECT_THAT(names(), ElementsAre(name(20)));
  EXPECT_EQ(ckpt({"verify", run_}).exit_code, 0);
}

TEST_F(Ckpt, PruneKeepsNewestThatVerifies) {
  flip(16);
  flip(20);
  const Result result = ckpt({"prune", run_, "--keep-last", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(names(), ElementsAre(name(12), name(16), name(20)));
  EXPECT_THAT(result.out, HasSubstr("does not verify: model.safetensors"));
  EXPECT_EQ(fs::read_symlink(in_ckpt("latest")), name(12));
}

TEST_F(Ckpt, PruneKeepsTheFirstSaveUntilTheSecondVerifies) {
  const std::string again = name(20) + "-2";
  fs::copy(in_ckpt(name(20)), in_ckpt(again), fs::copy_options::recursive);
  EXPECT_THAT(ckpt_json({"prune", run_, "--keep-last", "9", "--dry-run"}, 0)["removed"][0]["name"], name(20));
  flip(20);
  fs::rename(in_ckpt(again), in_ckpt("good"));
  fs::rename(in_ckpt(name(20)), in_ckpt(again));
  fs::rename(in_ckpt("good"), in_ckpt(name(20)));
  EXPECT_EQ(ckpt({"prune", run_, "--keep-last", "1"}).exit_code, 0);
  EXPECT_THAT(names(), ElementsAre(name(20), again));
}

TEST_F(Ckpt, LooksAfterTheNewestBranchAndLeavesOthersAlone) {
  fs::create_directory(in_ckpt("branch-2"));
  for (const int step : {8, 12}) fs::copy(in_ckpt(name(step)), in_ckpt("branch-2/" + name(step)));
  const auto document = ckpt_json({"ls", run_}, 0);
  EXPECT_THAT(strings_at(document["checkpoints"], "name"), ElementsAre("branch-2/" + name(8), "branch-2/" + name(12)));
  EXPECT_EQ(document["checkpoints"][1]["latest"], true);
  EXPECT_EQ(document["set_aside"].size(), 5U);
  EXPECT_THAT(ckpt({"ls", run_}).out, HasSubstr("of a branch that was left: " + name(20)));
  EXPECT_EQ(ckpt({"prune", run_, "--keep-last", "1"}).exit_code, 0);
  EXPECT_THAT(names(), ElementsAre("branch-2", name(4), name(8), name(12), name(16), name(20)));
  EXPECT_EQ(ckpt({"prune", run_, "--keep-last", "1", "--set-aside"}).exit_code, 0);
  EXPECT_THAT(names(), ElementsAre("branch-2"));
  EXPECT_TRUE(fs::exists(in_ckpt("branch-2/" + name(12))));
  EXPECT_FALSE(fs::exists(in_ckpt("branch-2/" + name(8))));
}

TEST_F(Ckpt, PruneRemovesNothingWhenNoneVerifies) {
  for (const int step : {4, 8, 12, 16, 20}) flip(step);
  leave_remains();
  const auto before = names();
  const Result result = ckpt({"prune", run_, "--keep-last", "1", "--set-aside"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("no checkpoint verifies"));
  EXPECT_EQ(names(), before);
}

TEST_F(Ckpt, PruneRefusesFolderInUse) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 5}\n");
  Program program({gputrain_path(), "run", job, "--output-dir", folder_ / "busy", "--set", "train.max_steps=1000000"});
  ASSERT_TRUE(program.prints("step    20/"));
  const Result refused = ckpt({"prune", folder_ / "busy", "--keep-last", "1"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("in use"));
  EXPECT_EQ(ckpt({"ls", folder_ / "busy"}).exit_code, 0);
  EXPECT_EQ(ckpt({"prune", folder_ / "busy", "--keep-last", "1", "--dry-run"}).exit_code, 0);
}

TEST_F(Ckpt, Exits2ForWhatIsNoRun) {
  const std::string text = folder_.write("file.txt", "x");
  const std::string empty = folder_ / "empty";
  fs::create_directory(empty);
  for (const auto& path : {folder_ / "nowhere", text, empty}) {
    for (const auto& arguments :
         std::vector<std::vector<std::string>>{{"ls", path}, {"verify", path}, {"prune", path, "--keep-last", "1"}}) {
      const Result result = ckpt(arguments);
      EXPECT_EQ(result.exit_code, 2) << arguments[0] << " " << path;
      EXPECT_THAT(result.err, HasSubstr("ckpt/"));
      EXPECT_THAT(result.out, IsEmpty());
    }
  }
  EXPECT_EQ(ckpt({"prune", run_}).exit_code, 2);
  EXPECT_THAT(ckpt({"prune", run_, "--keep-last", "0"}).err, HasSubstr("at least 1"));
  EXPECT_EQ(ckpt({}).exit_code, 2);
}

TEST(TensorDifference, CountsBitsAndFindsLargestDifferences) {
  const auto difference =
      app::difference_between(at::tensor({1.0F, 2.0F, 0.0F, 8.0F}), at::tensor({1.0F, 2.5F, -0.0F, 4.0F}));
  EXPECT_EQ(difference.elements, 4);
  EXPECT_EQ(difference.differing, 3);
  EXPECT_EQ(difference.largest_absolute, 4);
  EXPECT_EQ(difference.largest_relative, 0.5);
}

TEST(TensorDifference, SeparatesNeighboursAmongLargeIntegers) {
  const int64_t large = (int64_t{1} << 60) + 1;
  const auto difference =
      app::difference_between(at::full({5000}, large, at::kLong), at::full({5000}, large + 1, at::kLong));
  EXPECT_EQ(difference.differing, 5000);
  EXPECT_EQ(difference.largest_absolute, 1);
  const auto ends = app::difference_between(at::full({1}, std::numeric_limits<int64_t>::min(), at::kLong),
                                            at::full({1}, std::numeric_limits<int64_t>::max(), at::kLong));
  EXPECT_DOUBLE_EQ(ends.largest_absolute, 0x1p64);
}

TEST(TensorDifference, IsInfiniteWhenOnlyOneIsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto one = app::difference_between(at::tensor({1.0F, nan}), at::tensor({1.0F, 2.0F}));
  EXPECT_EQ(one.differing, 1);
  EXPECT_EQ(one.largest_absolute, std::numeric_limits<double>::infinity());
  const auto both = app::difference_between(at::tensor({nan}), at::tensor({-nan}));
  EXPECT_EQ(both.differing, 1);
  EXPECT_EQ(both.largest_absolute, 0);
}

TEST(TensorDifference, ReadsEveryDtypeOfTheFileFormat) {
  for (const auto type :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kUInt16, at::kUInt32, at::kUInt64,
        at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kFloat8_e5m2, at::kFloat8_e4m3fn}) {
    const auto zeros = at::full({3}, 0, at::kFloat).to(type), ones = at::full({3}, 1, at::kFloat).to(type);
    const auto difference = app::difference_between(zeros, ones);
    EXPECT_EQ(difference.differing, 3) << at::toString(type);
    EXPECT_EQ(difference.largest_absolute, 1) << at::toString(type);
    EXPECT_EQ(app::difference_between(ones, ones).differing, 0) << at::toString(type);
  }
}

}  // namespace
}  // namespace gputrain::testing_support

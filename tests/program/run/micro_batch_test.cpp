// train.micro_batch_size: auto, in runs as a user starts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "gputrain/setup/micro_batch_choice.hpp"
#include "gputrain/setup/timed_steps.hpp"
#include "support/checkpoints.hpp"
#include "support/ports.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/sanitizers.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::map<std::string, std::string> kOneThread{{"OMP_NUM_THREADS", "1"}};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& settings) {
  for (const auto& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  return arguments;
}

Result train(const std::string& job, const std::string& folder, const std::vector<std::string>& settings) {
  Result result = gputrain(with({"run", job, "--output-dir", folder}, settings), kOneThread);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result;
}

/// The micro-batch in the run's resolved job.
std::string found_in(const std::string& folder) {
  std::smatch match;
  const std::string text = read_file(folder + "/job.resolved.yaml");
  return std::regex_search(text, match, std::regex("micro_batch_size: (\\S+)")) ? match.str(1) : "";
}

void expect_same_run(const std::string& a, const std::string& b) {
  EXPECT_EQ(timeless_metrics(a + "/metrics.jsonl"), timeless_metrics(b + "/metrics.jsonl"));
  EXPECT_EQ(read_file(a + "/model.safetensors"), read_file(b + "/model.safetensors"));
  EXPECT_THAT(differing_tensors(a, b), IsEmpty());
}

class AutoMicroBatch : public ::testing::Test {
 protected:
  std::string text_job() { return write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n"); }
  const std::vector<std::string> text_settings_{"precision=fp32", "model.config.dropout=0.1",
                                                "train.global_batch_size=12"};
  TemporaryFolder folder_;
};

TEST_F(AutoMicroBatch, TrainsAsIfTheNumberWereGiven) {
  const std::string job = folder_.write("images.yaml",
                                        "schema: 1\nprecision: fp32\ndevice: cpu\n"
                                        "model: {type: resnet18, config: {num_classes: 10, stem: cifar, width: 8}}\n"
                                        "data: {train: {format: synthetic, samples: 64}, val: {split: 25%},\n"
                                        "       image: {size: 16, augment: {hflip: 0.5}}}\n"
                                        "train: {max_steps: 6, global_batch_size: 6}\n"
                                        "optimizer: {type: sgd, lr: 0.1, momentum: 0.9}\n"
                                        "log: {interval: 1}\n");
  const Result images = train(job, folder_ / "images", {"train.micro_batch_size=auto"});
  EXPECT_THAT(images.out, HasSubstr(" (auto: fastest that fits)  samples per rank  1: "));
  train(job, folder_ / "images_given", {"train.micro_batch_size=" + found_in(folder_ / "images")});
  expect_same_run(folder_ / "images", folder_ / "images_given");

  auto settings = text_settings_;
  settings.push_back("train.micro_batch_size=auto");
  train(text_job(), folder_ / "text", settings);
  settings.back() = "train.micro_batch_size=" + found_in(folder_ / "text");
  train(text_job(), folder_ / "text_given", settings);
  expect_same_run(folder_ / "text", folder_ / "text_given");
}

TEST_F(AutoMicroBatch, IsFoundOnceAndKeptOnResume) {
  auto settings = text_settings_;
  settings.push_back("train.micro_batch_size=auto");
  train(text_job(), folder_ / "whole", settings);
  copy_without_the_end(folder_ / "whole", folder_ / "again");
  const Result resumed = train(text_job(), folder_ / "again", settings);
  EXPECT_THAT(resumed.out, HasSubstr("micro   " + found_in(folder_ / "whole") + " (auto: as found before)"));
  EXPECT_THAT(resumed.out, HasSubstr("resume  step 10"));
  expect_same_run(folder_ / "whole", folder_ / "again");
  const Result evaluated =
      gputrain(with({"eval", text_job(), "--json", "--weights", folder_ / "whole"}, settings), kOneThread);
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;

  settings.push_back("train.activation_checkpointing=block");  // needs another search
  copy_without_the_end(folder_ / "whole", folder_ / "other");
  EXPECT_THAT(train(text_job(), folder_ / "other", settings).out, HasSubstr("(auto: fastest that fits)"));
}

TEST_F(AutoMicroBatch, TriesNoneThatIsLargerThanAnEpochNeeds) {
  const std::string job = folder_.write("few.yaml",
                                        "schema: 1\ndevice: cpu\nmodel: {type: mlp}\n"
                                        "data: {train: {format: synthetic, samples: 6}, image: {size: 8}}\n"
                                        "train: {max_steps: 2, global_batch_size: 64, micro_batch_size: auto}\n");
  const Result few = train(job, folder_ / "few", {});
  EXPECT_THAT(few.out, AllOf(HasSubstr("  8: "), Not(HasSubstr("  16: ")))) << "8 takes all 6 samples";
  const Result many = train(job, folder_ / "many", {"data.train.samples=64"});
  EXPECT_THAT(many.out, HasSubstr("  16: "));
}

TEST_F(AutoMicroBatch, IsTheSameOnAllRanks) {
  const std::vector<std::string> shared{"--set", "train.global_batch_size=12", "--set", "parallel.shard=gradients",
                                        "--set"};
  auto more = shared;
  more.push_back("train.micro_batch_size=auto");
  const Result found = ranks(2, text_job(), folder_ / "auto", more);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("  6: "));  // a rank's whole share was tried, or it got slower before
  more.back() = "train.micro_batch_size=" + found_in(folder_ / "auto");
  ASSERT_EQ(ranks(2, text_job(), folder_ / "given", more).exit_code, 0);
  expect_same_run(folder_ / "auto", folder_ / "given");
}

class MicroBatchMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kIsSanitized) GTEST_SKIP() << testing::kNoDataLimit;
  }
  /// A text model with about 3.6 MiB of activations per sample, in a process limited to `mebibytes` of data.
  std::unique_ptr<Program> start(int mebibytes, const std::vector<std::string>& settings,
                                 std::map<std::string, std::string> environment = kOneThread) {
    std::vector<std::string> arguments{"sh",
                                       "-c",
                                       "ulimit -d " + std::to_string(mebibytes * 1024) + "; exec \"$@\"",
                                       "sh",
                                       gputrain_path(),
                                       "run",
                                       job_,
                                       "--output-dir",
                                       folder_ / "run"};
    arguments = with(arguments, {"device=cpu", "precision=fp32", "model.config.n_layer=16", "model.config.n_embd=64",
                                 "model.config.block_size=64", "train.global_batch_size=48", "train.max_steps=1",
                                 "data.num_workers=0"});
    return std::make_unique<Program>(with(arguments, settings), environment);
  }
  Result run_within(int mebibytes, const std::vector<std::string>& settings) {
    return start(mebibytes, settings)->wait();
  }
  TemporaryFolder folder_;
  std::string job_ = write_gpt_job(folder_);
};

TEST_F(MicroBatchMemory, StopsBelowLimitByEstimate) {
  EXPECT_EQ(run_within(260, {"train.micro_batch_size=48"}).exit_code, 6);
  for (const int mebibytes : {240, 260}) {  // a save must fit beside the largest micro-batch
    const Result result = run_within(mebibytes, {"train.micro_batch_size=auto", "checkpoint.resume=never"});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, ::testing::ContainsRegex("  [0-9]+: needs [0-9.]+ MiB, [0-9.]+ MiB are free  in "));
    EXPECT_THAT(result.out + result.err, Not(HasSubstr("out of memory")));
  }
}

/// The memory of one sample, if it does not fit.
double needed_mebibytes(const Result& refused) {
  static const std::string kBefore = "not even a micro-batch of 1 fits: needs ";
  const size_t found = refused.err.find(kBefore);
  EXPECT_NE(found, std::string::npos) << refused.err;
  return found == std::string::npos ? 0 : std::stod(refused.err.substr(found + kBefore.size()));
}

TEST_F(MicroBatchMemory, LeavesRoomForCopyOfASave) {
  std::vector<std::string> settings{"train.micro_batch_size=auto", "model.config.n_embd=192"};
  const double with_saves = needed_mebibytes(run_within(260, settings));
  settings.emplace_back("checkpoint.interval=null");
  const double without = needed_mebibytes(run_within(260, settings));  // gradients and Adam's moments
  constexpr double kStacksAndBlocks = 32;
  EXPECT_GT(without, 60);
  EXPECT_NEAR(with_saves, 2 * without + kStacksAndBlocks, 1);  // weights are as large as gradients
}

std::map<std::string, std::string> one_of_two(const std::string& rank, const std::string& port) {
  return {{"LOCAL_WORLD_SIZE", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port},
          {"OMP_NUM_THREADS", "1"},  {"RANK", rank},      {"LOCAL_RANK", rank}};
}

TEST_F(MicroBatchMemory, FollowsRankWithLeastMemory) {
  const std::string port = std::to_string(::gputrain::testing::free_port());
  const std::vector<std::string> settings{"train.micro_batch_size=auto", "train.global_batch_size=96"};
  const auto first = start(8000, settings, one_of_two("0", port)), second = start(400, settings, one_of_two("1", port));
  const Result result = first->wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(second->wait().exit_code, 0);
  EXPECT_THAT(result.out, ::testing::ContainsRegex("  [0-9]+: needs [0-9.]+ MiB, [0-9.]+ MiB are free on rank 1  in "));
}

TEST_F(MicroBatchMemory, IncludesAnEvaluationPass) {
  const Result result =
      run_within(260, {"train.micro_batch_size=auto", "train.global_batch_size=4", "eval.batch_size=1024"});
  EXPECT_EQ(result.exit_code, 6) << result.out;
  EXPECT_THAT(result.err, HasSubstr("out of memory with a micro-batch of 1"));
  EXPECT_THAT(result.err, HasSubstr("eval.batch_size="));
}

TEST_F(MicroBatchMemory, SuggestsRemediesWhenNoSampleFits) {
  const Result result =
      run_within(260, {"train.micro_batch_size=auto", "model.config.block_size=2048", "model.config.n_layer=48"});
  EXPECT_EQ(result.exit_code, 6) << result.out;
  EXPECT_THAT(result.err, HasSubstr("out of memory with a micro-batch of 1"));
  EXPECT_THAT(result.err, HasSubstr("train.activation_checkpointing=block"));
  EXPECT_THAT(result.err, Not(HasSubstr("train.micro_batch_size=")));
}

TEST(AutoMicroBatchKey, DescribesSearchAndRefusesBadJobs) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const auto settings = [&](const std::vector<std::string>& words) {
    return gputrain(with(words, {"train.micro_batch_size=auto", "train.global_batch_size=12"}), kOneThread);
  };
  const Result dry = settings({"run", job, "--dry-run", "--output-dir", folder / "run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("micro   auto: a run tries 1 2 3 6 12 samples per rank before its first step"));
  const Result rehearsed = settings({"run", job, "--dry-run", "--world-size", "2", "--device-memory", "0.9MiB"});
  EXPECT_THAT(rehearsed.out, ::testing::ContainsRegex("activations .* for [123] ")) << rehearsed.out << rehearsed.err;
  const Result both = settings({"validate", job, "--set", "train.gradient_accumulation_steps=2"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("train.micro_batch_size: auto has no choice"));
  const Result open =
      gputrain({"validate", job, "--set", "train.micro_batch_size=auto", "--set", "train.global_batch_size=null"});
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_THAT(open.err, HasSubstr("add train.global_batch_size"));
}

/// On a GPU, the first step chooses kernels, which may take longer than the time limit of a micro-batch.
TEST(MicroBatchTrial, CountsAStepAfterASlowFirstOne) {
  const TemporaryFolder folder;
  const auto job = app::load_job({.file = write_gpt_job(folder)});
  app::TrainingSetup setup(job);
  const auto timed = app::time_steps(
      job, setup, {.batch = {.global_batch = 4, .micro_batch = 4, .accumulation = 1}, .steps = 4, .enough_seconds = 0});
  EXPECT_EQ(timed.seconds.size(), 1U);
  EXPECT_NE(timed.first_loss, timed.last_loss);
}

TEST(MicroBatchChoice, PicksFastestThenSmallest) {
  EXPECT_EQ(app::fastest({{1, 50, 0, ""}, {2, 99, 0, ""}, {4, 100, 0, ""}, {8, 90, 0, ""}}), 2);
  EXPECT_EQ(app::fastest({{1, 50, 0, ""}, {2, 90, 0, ""}, {4, 100, 0, ""}, {8, 200, 0, "needs 2 GiB, 1 GiB are free"}}),
            4);
}

}  // namespace
}  // namespace gputrain::testing_support

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/program.hpp"
#include "app/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

TEST(Verbs, ValidateReportsEveryMistakeAtOnceWithItsPlace) {
  const TemporaryFolder folder;
  const std::string job = folder.write("job.yaml",
                                       "model: {type: gptt}\n"
                                       "data: {train: {path: x, format: text}}\n"
                                       "train: {max_steps: -1, per_device_train_batch_size: 32}\n"
                                       "optimizer: {learning_rate: 0.1}\n");
  const Result result = gputrain({"validate", job});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("job.yaml:1:"));
  EXPECT_THAT(result.err, HasSubstr("job.yaml:3:"));
  EXPECT_THAT(result.err, HasSubstr("job.yaml:4:"));
  EXPECT_THAT(result.err, HasSubstr("micro_batch_size"));
  const Result json = gputrain({"validate", "--json", job});
  EXPECT_EQ(json.exit_code, 2);
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["valid"], false);
  EXPECT_GE(report["problems"].size(), 4U);
}

TEST(Verbs, WithoutTheirLibrarySayWhatIsMissing) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(gputrain_path(), folder / "gputrain");
  const Result alone = Program({folder / "gputrain", "version"}).wait();
  EXPECT_EQ(alone.exit_code, 6);
  EXPECT_THAT(alone.err, HasSubstr("cannot open the library: libgputrain.so"));
  EXPECT_EQ(Program({folder / "gputrain", "launch", "--help"}).wait().exit_code, 0);
}

TEST(Verbs, ValidateChecksTheGpusAllocatorWithoutAGpu) {
  const TemporaryFolder folder;
  const auto problem_with = [&](const std::string& line) {
    const Result result = gputrain({"validate", write_gpt_job(folder, line)});
    EXPECT_EQ(result.exit_code, line.empty() ? 0 : 2) << line;
    return result.err;
  };
  EXPECT_THAT(problem_with("alloc_conf: \"expandable_segment:True\"\n"), HasSubstr("no setting 'expandable_segment'"));
  EXPECT_THAT(problem_with("alloc_conf: \"expandable_segments:True\"\ndevice: cpu\n"), HasSubstr("device is cpu"));
  const Result run = gputrain({"run", write_gpt_job(folder, "alloc_conf: \"expandable_segments:True\"\n"), "--dry-run"},
                              {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("alloc_conf has no effect"));
}

TEST(Verbs, ConfigPrintsAJobThatReadsBackTheSame) {
  const TemporaryFolder folder;
  const Result first = gputrain({"config", write_gpt_job(folder)});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Result second = gputrain({"config", folder.write("resolved.yaml", first.out)});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(first.out, second.out);
}

TEST(Verbs, ConfigOriginNamesFileLineAndOption) {
  const TemporaryFolder folder;
  const Result result = gputrain({"config", "--origin", write_gpt_job(folder), "--set", "seed=7"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("job.yaml:2:"));
  EXPECT_THAT(result.out, HasSubstr("--set seed"));
  EXPECT_THAT(result.out, HasSubstr("default"));
}

TEST(Verbs, SchemaIsJson) {
  const Result result = gputrain({"schema"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(nlohmann::json::parse(result.out).contains("properties"));
}

TEST(Verbs, ListAndDescribeKnowEveryEntry) {
  const Result list = gputrain({"list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  for (const char* name : {"gpt", "resnet50", "imagefolder", "tokens", "adamw", "sgd", "cosine"}) {
    EXPECT_THAT(list.out, HasSubstr(name));
  }
  const Result describe = gputrain({"describe", "model", "gpt"});
  EXPECT_EQ(describe.exit_code, 0) << describe.err;
  EXPECT_THAT(describe.out, HasSubstr("n_layer"));
  const Result unknown = gputrain({"describe", "model", "gpd"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("gpt"));
}

TEST(Verbs, EvalGivesTheTrainedModelsValidationLoss) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const auto summary = nlohmann::json::parse(read_file(folder / "run/summary.json"));
  const Result result = gputrain({"eval", job, "--weights", folder / "run", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out)["val/loss"], summary["metrics"]["val/loss"]);
}

TEST(Verbs, AWrongCommandLineIsExitCode2) {
  EXPECT_EQ(gputrain({}).exit_code, 2);
  EXPECT_EQ(gputrain({"trian"}).exit_code, 2);
  EXPECT_EQ(gputrain({"run"}).exit_code, 2);
  EXPECT_EQ(gputrain({"run", "/nowhere.yaml"}).exit_code, 2);
  EXPECT_EQ(gputrain({"--help"}).exit_code, 0);
  EXPECT_EQ(gputrain({"version"}).exit_code, 0);
}

}  // namespace
}  // namespace gputrain::testing_support

// Resuming with another job or other data than the checkpoint was saved with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "datasets/tiny_images.hpp"
#include "support/endless_run.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ResumeChangedJob, RefusesSettingsThatChangeResults) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const Result refused = gputrain({"run", job, "--output-dir", folder / "run", "--set", "model.config.n_layer=2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("model.config.n_layer"));
  const Result longer = gputrain({"run", job, "--output-dir", folder / "run", "--set", "train.max_steps=30"});
  EXPECT_EQ(longer.exit_code, 2);
  EXPECT_THAT(longer.err, HasSubstr("--accept"));
  const Result accepted =
      gputrain({"run", job, "--accept", "--output-dir", folder / "run", "--set", "train.max_steps=30"});
  EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_THAT(accepted.out, HasSubstr("done    30/30"));
}

TEST(ResumeChangedJob, AcceptsNewScheduleAndMovedData) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 5}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::filesystem::rename(folder / "text.txt", folder / "moved.txt");
  std::vector<std::string> on{"run", job, "--output-dir", folder / "run"};
  for (const std::string& setting :
       {std::string("train.max_steps=30"), std::string("optimizer.lr=1e-4"), std::string("lr_scheduler={type: linear}"),
        std::string("optimizer.weight_decay=0"), "data.train.path=" + folder / "moved.txt"}) {
    on.insert(on.end(), {"--set", setting});
  }
  const Result refused = gputrain(on);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--accept"));
  on.push_back("--accept");
  const Result accepted = gputrain(on);
  ASSERT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_THAT(accepted.out, HasSubstr("accepted train.max_steps 20 -> 30"));
  EXPECT_THAT(read_file(folder / "run/ledger.jsonl"), HasSubstr(R"("train.max_steps":["20","30"])"));
  const auto rates = values(folder / "run/metrics.jsonl", "train/lr");
  ASSERT_EQ(rates.size(), 6U);
  EXPECT_EQ(rates[3], 3e-3);
  EXPECT_LT(rates[4], 1e-4);
}

TEST(ResumeChangedJob, EvaluatesAgainOnOtherValidationData) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), run = folder / "run";
  const auto train = [&](const std::string& tokens) {
    return gputrain({"run", job, "--output-dir", run, "--set", "eval.max_tokens=" + tokens});
  };
  ASSERT_EQ(train("64").exit_code, 0);
  const auto before = summary(run)["metrics"];
  EXPECT_THAT(train("64").out, ::testing::Not(HasSubstr("eval    20 ")));
  const auto evaluations = [&] {
    const std::string curve = read_file(run + "/metrics.jsonl"), name = "\"val/loss\"";
    int count = 0;
    for (size_t at = curve.find(name); at != std::string::npos; at = curve.find(name, at + 1)) ++count;
    return count;
  };
  const int evaluations_before = evaluations();
  const Result other = train("128");
  EXPECT_EQ(evaluations(), evaluations_before + 1);  // metrics.jsonl keeps its lines
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr("eval    20 "));
  EXPECT_THAT(other.err, HasSubstr("evaluated on other data than before"));
  const auto after = summary(run);
  EXPECT_NE(after["metrics"]["val/loss"], before["val/loss"]);
  EXPECT_EQ(after["best"]["val/loss"]["value"], after["metrics"]["val/loss"]);
  EXPECT_THAT(train("128").err, ::testing::Not(HasSubstr("other data")));
}

TEST(ResumeChangedJob, AsksBeforeItEvaluatesOtherFiles) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), text = read_file(folder / "text.txt").substr(0, 2000);
  const auto train = [&](const std::string& file, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{
        "run", job, "--output-dir", folder / "run", "--set", "data.val.split=null", "--set", "data.val.path=" + file};
    words.insert(words.end(), more.begin(), more.end());
    return gputrain(words);
  };
  ASSERT_EQ(train(folder.write("a.txt", text)).exit_code, 0);
  const std::string other = folder.write("b.txt", std::string(text.rbegin(), text.rend()));
  const Result refused = train(other);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("data.val.path: "), HasSubstr("--accept goes on")));
  const Result accepted = train(other, {"--accept"});
  EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_THAT(accepted.err, HasSubstr("evaluated on other data than before"));
}

TEST(ResumeChangedJob, RefusesOtherOptionsOfEvaluation) {
  const TemporaryFolder folder;
  const std::string text = write_gpt_job(folder);
  const std::string images = folder.write(
      "images.yaml",
      "schema: 1\nname: images\nmodel: {type: mlp}\n"
      "data: {train: {format: synthetic, samples: 32, num_classes: 3}, val: {split: 25%}, image: {size: 8}}\n"
      "train: {max_steps: 2, global_batch_size: 8}\noptimizer: {type: sgd, lr: 0.1}\n");
  for (const auto& [job, setting] :
       {std::pair(text, "data.val.split=20%"), std::pair(images, "data.image.eval.resize=10")}) {
    const std::string run = folder / (job == text ? "text" : "images");
    ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
    const Result refused = gputrain({"run", job, "--output-dir", run, "--accept", "--set", setting});
    EXPECT_EQ(refused.exit_code, 2) << setting;
    EXPECT_THAT(refused.err, HasSubstr("these settings cannot change"));
  }
}

TEST(ResumeChangedJob, AsksBeforeItEvaluatesForTheFirstOrLastTime) {
  const TemporaryFolder folder;
  const std::string job =
      folder.write("job.yaml",
                   "schema: 1\nmodel: {type: mlp}\ndata: {train: {format: synthetic, samples: 32, num_classes: 3}, "
                   "image: {size: 8}}\n"
                   "train: {max_steps: 2, global_batch_size: 8}\noptimizer: {type: sgd, lr: 0.1}\n");
  const std::string val = "data.val={format: synthetic, samples: 16, num_classes: 3}";
  for (const bool had_one : {false, true}) {
    const std::string run = folder / (had_one ? "had" : "lacked");
    std::vector<std::string> without{"run", job, "--output-dir", run}, with = without;
    with.insert(with.end(), {"--set", val});
    ASSERT_EQ(gputrain(had_one ? with : without).exit_code, 0);
    std::vector<std::string> on = had_one ? without : with;
    on.insert(on.end(), {"--set", "train.max_steps=4", "--accept"});
    const std::vector<std::string> unasked(on.begin(), on.end() - 1);
    const Result refused = gputrain(unasked);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr(had_one ? "data.val: given -> null" : "data.val: null -> given"));
    const Result accepted = gputrain(on);
    EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
    EXPECT_EQ(read_file(run + "/summary.json").find("val/loss") == std::string::npos, had_one);
    EXPECT_EQ(accepted.err.find("there is no data.val any more: earlier values no longer") != std::string::npos,
              had_one);
  }
}

TEST(ResumeChangedJob, AsksBeforeItTakesAnotherGlobalBatch) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run", "--set", "train.max_steps=10"}).exit_code, 0);
  std::vector<std::string> on{"run", job, "--output-dir", folder / "run", "--set", "train.global_batch_size=4"};
  EXPECT_EQ(gputrain(on).exit_code, 2);
  on.push_back("--accept");
  const Result accepted = gputrain(on);
  ASSERT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_THAT(accepted.err, HasSubstr("the global batch was 8 samples at the checkpoint and is 4 now"));
  EXPECT_EQ(gputrain({"data", "audit", folder / "run"}).exit_code, 0);
}

TEST(ResumeChangedJob, EvaluatesAgainOnRewrittenValidation) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), run = folder / "run";
  std::string text = read_file(folder / "text.txt").substr(0, 2000);
  const auto train = [&] {
    const std::string path = "data.val.path=" + folder.write("val.txt", text);
    return gputrain({"run", job, "--output-dir", run, "--set", "data.val.split=null", "--set", path});
  };
  ASSERT_EQ(train().exit_code, 0);
  EXPECT_THAT(train().err, ::testing::Not(HasSubstr("other data")));
  std::reverse(text.begin(), text.end());
  const Result other = train();
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_THAT(other.err, HasSubstr("evaluated on other data than before"));
  EXPECT_THAT(other.out, HasSubstr("eval    20 "));
}

/// The error for changed data, which is accepted only with --accept.
std::string refused_then_accepted(std::vector<std::string> run) {
  const Result refused = gputrain(run);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, ::testing::AllOf(HasSubstr("the training data has changed"), HasSubstr("--accept")));
  run.push_back("--accept");
  const Result accepted = gputrain(run);
  EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_THAT(accepted.err, HasSubstr("the training data has changed"));
  return refused.err;
}

TEST(ResumeChangedJob, RefusesGrownDataUnlessAccepted) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 1}\n");
  const std::vector<std::string> run{"run", job, "--output-dir", folder / "run", "--set", "train.max_steps=200"};
  const auto grow = [&] { std::ofstream(folder / "text.txt", std::ios::app) << std::string(400, 't'); };
  Program first({gputrain_path(), run[0], run[1], run[2], run[3], run[4], run[5]});
  ASSERT_TRUE(first.prints("step    10/"));
  first.signal(SIGTERM);
  ASSERT_EQ(first.wait().exit_code, 143);
  grow();
  refused_then_accepted(run);
  EXPECT_THAT(gputrain({"data", "audit", folder / "run"}).out, HasSubstr(": changed within an epoch (samples"));
  grow();
  EXPECT_EQ(gputrain(run).exit_code, 0);  // nothing is left to train
}

TEST(ResumeChangedJob, RefusesRewrittenDataUnlessAccepted) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 10}\nlog: {interval: 5}\n"),
                    run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
  std::string text = read_file(folder / "text.txt");
  const auto resume = [&](const std::string& step) {
    folder.write("text.txt", text);
    return std::vector<std::string>{"run", job,     "--output-dir",
                                    run,   "--set", "checkpoint.resume=" + run + "/ckpt/step-000000" + step};
  };
  EXPECT_EQ(gputrain(resume("10")).exit_code, 0) << "the same text, written again";
  EXPECT_EQ(gputrain({"data", "audit", run}).exit_code, 0);
  std::reverse(text.begin(), text.end());
  const auto other = resume("10");
  EXPECT_THAT(gputrain({"replay", run, "--step", "15"}).out, HasSubstr("the replay uses other samples"));
  const std::string refused = refused_then_accepted(other);
  EXPECT_THAT(refused, HasSubstr("as many samples as before, but files of other content, at step 10"));
  const Result audit = gputrain({"data", "audit", run});
  EXPECT_EQ(audit.exit_code, 4) << audit.out;
  EXPECT_THAT(audit.out, HasSubstr("step 10: the data was written anew within an epoch"));
}

TEST(ResumeChangedJob, UsesRewrittenDataOnceFromANewEpochOn) {
  const TemporaryFolder folder;
  std::vector<std::string> run{"run",   write_gpt_job(folder),  "--output-dir", folder / "run",      "--accept",
                               "--set", "train.max_steps=null", "--set",        "train.max_epochs=1"};
  ASSERT_EQ(gputrain(run).exit_code, 0);
  std::string text = read_file(folder / "text.txt");
  std::reverse(text.begin(), text.end());
  folder.write("text.txt", text);
  run.back() = "train.max_epochs=2";
  ASSERT_EQ(gputrain(run).exit_code, 0);
  const Result audit = gputrain({"data", "audit", folder / "run"});
  EXPECT_EQ(audit.exit_code, 0) << audit.out;
}

TEST(ResumeChangedJob, RefusesRenamedClassesUnlessAccepted) {
  const TemporaryFolder folder;
  for (const std::string name : {"cat/1", "cat/2", "dog/1", "dog/2"})
    folder.write("images/" + name + ".png", datasets::png_of({0, 0, 255}));
  const std::string job = folder.write(
      "job.yaml",
      "device: cpu\nmodel: {type: mlp, config: {hidden: [8]}}\n"
      "data: {train: {path: " +
          folder / "images" +
          ", format: imagefolder}}\n"
          "train: {max_steps: 20, global_batch_size: 2}\nlog: {interval: 5}\ncheckpoint: {interval: 10}\n");
  const std::string run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
  std::filesystem::rename(folder / "images/cat", folder / "images/eel");
  EXPECT_THAT(gputrain({"replay", run, "--step", "15"}).out, HasSubstr("the replay has other labels"));
  const std::string resume = "checkpoint.resume=" + run + "/ckpt/step-00000010";
  EXPECT_THAT(refused_then_accepted({"run", job, "--output-dir", run, "--set", resume}),
              HasSubstr("its classes are not those of before, at step 10"));
}

TEST(ResumeChangedJob, RefusesOtherCharactersUnlessAccepted) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 10}\n"), run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
  std::string text = read_file(folder / "text.txt");
  std::replace(text.begin(), text.end(), 'c', 'z');
  std::ofstream(folder / "text.txt", std::ios::trunc) << text;
  const std::string resume = "checkpoint.resume=" + run + "/ckpt/step-00000010";
  EXPECT_THAT(refused_then_accepted({"run", job, "--output-dir", run, "--set", resume}),
              HasSubstr("its characters are not those of before"));
}

}  // namespace
}  // namespace gputrain::testing_support

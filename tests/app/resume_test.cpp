#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "app/program.hpp"
#include "app/small_job.hpp"
#include "datasets/tiny_images.hpp"
#include "gputrain/checkpoint/manifest.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

/// Dropout, accumulation and intervals that no stop divides: everything a resumed run must carry over.
constexpr const char* kDemandingJob =
    "log: {interval: 5}\neval: {interval: 60}\ncheckpoint: {interval: 25}\nlr_scheduler: {type: cosine, warmup: 4}\n";

std::vector<std::string> demanding_run(const TemporaryFolder& folder, const std::string& job, const std::string& name) {
  return {gputrain_path(),
          "run",
          job,
          "--output-dir",
          folder / name,
          "--set",
          "model.config.dropout=0.1",
          "--set",
          "train.micro_batch_size=3",
          "--set",
          "train.max_steps=200",
          "--set",
          "precision=fp32",
          "--set",
          "data.num_workers=1"};
}

TEST(Resume, AfterThreeSignalsEqualsAnUninterruptedRunBitForBit) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, kDemandingJob);
  ASSERT_EQ(Program(demanding_run(folder, job, "whole")).wait().exit_code, 0);
  for (const auto& [line, signal, code] :
       {std::tuple{"step    5/", SIGTERM, 143}, std::tuple{"step    40/", SIGINT, 130},
        std::tuple{"eval    60", SIGTERM, 143}}) {
    Program attempt(demanding_run(folder, job, "parts"));
    ASSERT_TRUE(attempt.prints(line)) << line;
    attempt.signal(signal);
    const Result result = attempt.wait();
    EXPECT_EQ(result.exit_code, code) << result.out << result.err;
  }
  const Result last = Program(demanding_run(folder, job, "parts")).wait();
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_THAT(last.out, HasSubstr("resume  step "));
  EXPECT_EQ(read_file(folder / "whole/model.safetensors"), read_file(folder / "parts/model.safetensors"));
  EXPECT_EQ(timeless_metrics(folder / "whole/metrics.jsonl"), timeless_metrics(folder / "parts/metrics.jsonl"));
}

TEST(Resume, CutsCurveAndLogAtItsStepAndKeepsWhatItCuts) {
  const TemporaryFolder folder;
  const std::string job =
      write_gpt_job(folder, "log: {interval: 1}\neval: {interval: 6}\ncheckpoint: {interval: 5, keep_last: 9}\n");
  const std::vector<std::string> run{"run", job, "--output-dir", folder / "run"};
  ASSERT_EQ(gputrain(run).exit_code, 0);
  const std::string curve = timeless_metrics(folder / "run/metrics.jsonl");
  for (const char* step : {"20", "18", "15"}) std::filesystem::remove_all(folder / "run/ckpt/step-000000" + step);
  ASSERT_EQ(gputrain(run).exit_code, 0);
  EXPECT_EQ(timeless_metrics(folder / "run/metrics.jsonl"), curve);
  EXPECT_THAT(read_file(folder / "run/metrics.jsonl"), HasSubstr("resumed at step 12, attempt 2"));
  EXPECT_THAT(read_file(folder / "run/metrics.jsonl.left"), HasSubstr("\"step\":13"));
  const std::string log = read_file(folder / "run/logs/rank_0000.log"),
                    left = read_file(folder / "run/logs/rank_0000.log.left");
  const size_t mark = log.find("resumed at step 12, attempt 2");
  ASSERT_NE(mark, std::string::npos);
  for (const char* once : {" step    12/20", " step    13/20", " step    20/20", " eval    18 "}) {
    EXPECT_EQ(log.find(once), log.rfind(once)) << once;
    EXPECT_EQ(log.find(once) > mark, std::string(once) != " step    12/20") << once;
  }
  EXPECT_THAT(left, HasSubstr(" step    13/20"));
  EXPECT_THAT(left, ::testing::Not(HasSubstr(" step    12/20")));
}

TEST(Resume, NamesAndSkipsATornCheckpoint) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::filesystem::resize_file(folder / "run/ckpt/step-00000020/model.safetensors", 100);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("step-00000020"));
  EXPECT_THAT(result.out, HasSubstr("resume  step 15"));
}

/// Makes a checkpoint one that was written where there is no generator of a CPU.
void take_generators_from(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "generators.safetensors", index = folder / "manifest.json";
  std::string bytes = read_file(file);
  bytes.replace(bytes.find("\"cpu\""), 5, "\"gpu\"");
  std::ofstream(file, std::ios::binary) << bytes;
  checkpoint::Sealer sealer;
  sealer.add(bytes.data(), bytes.size());
  auto manifest = checkpoint::parse_manifest(read_file(index), index);
  manifest.files.at("generators.safetensors").seal = sealer.seal();
  std::ofstream(index) << checkpoint::to_json(manifest);
}

TEST(Resume, GoesOnFromWhatAnotherKindOfDeviceSaved) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 15}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::filesystem::remove_all(folder / "run/ckpt/step-00000020");
  take_generators_from(folder / "run/ckpt/step-00000015");
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 15 "));
}

TEST(Resume, TakesWhatADamagedCheckpointHadReplaced) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const std::string newest = folder / "run/ckpt/step-00000020";
  std::filesystem::copy(newest, newest + ".old.partial");  // killed before the new one was read back
  std::filesystem::resize_file(newest + "/model.safetensors", 100);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 20 from "));
  EXPECT_THAT(result.err, HasSubstr("the one that it had replaced is in its place again"));
  EXPECT_TRUE(std::filesystem::exists(newest + ".bad"));
}

TEST(Resume, WithNothingButBadCheckpointsDoesNotStartOver) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::filesystem::resize_file(folder / "run/ckpt/step-00000020/model.safetensors", 100);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
    EXPECT_EQ(result.exit_code, 5) << result.out;
    EXPECT_THAT(result.err, HasSubstr("none of the run's checkpoints is good"));
    EXPECT_THAT(read_file(folder / "run/ledger.jsonl"),
                HasSubstr("\"exit_code\":5,\"kind\":\"start_failed\",\"reason\":\"" +
                          folder / "run/ckpt: none of the run's checkpoints is good"));
  }
  EXPECT_EQ(gputrain({"data", "audit", folder / "run"}).exit_code, 0);
}

TEST(Resume, FromAnOlderCheckpointLeavesTheNewerOnesBehindForGood) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n");
  const std::vector<std::string> run{"run", job, "--output-dir", folder / "run"};
  ASSERT_EQ(gputrain(run).exit_code, 0);
  Program again({gputrain_path(), "run", job, "--output-dir", folder / "run", "--set",
                 "checkpoint.resume=" + (folder / "run/ckpt/step-00000010"), "--set", "checkpoint.interval=null",
                 "--set", "log.interval=1", "--set", "checkpoint.keep_best=0"});
  ASSERT_TRUE(again.prints("resume  step 10"));
  again.signal(SIGKILL);
  again.wait();
  EXPECT_TRUE(std::filesystem::exists(folder / "run/ckpt/step-00000020.left"));
  EXPECT_THAT(gputrain(run).out, HasSubstr("resume  step 10"));
}

TEST(Resume, ThatIsRefusedSetsNothingAside) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::ofstream(folder / "text.txt", std::ios::app) << std::string(200, 'e');
  const Result refused = gputrain({"run", job, "--output-dir", folder / "run", "--set",
                                   "checkpoint.resume=" + (folder / "run/ckpt/step-00000010")});
  EXPECT_EQ(refused.exit_code, 2) << refused.out << refused.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "run/ckpt/step-00000020"));
}

/// Runs a job from a checkpoint on, to this many steps.
Result run_from(const TemporaryFolder& folder, const std::string& checkpoint, const std::string& steps) {
  return gputrain({"run", folder / "job.yaml", "--output-dir", folder / "run", "--accept", "--set",
                   "checkpoint.resume=" + checkpoint, "--set", "train.max_steps=" + steps});
}

TEST(Resume, KeepsWhatWasSavedAfterAChoiceThatTheLedgerHasLost) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 3}\n"),
                    ledger = folder / "run/ledger.jsonl";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  ASSERT_EQ(run_from(folder, folder / "run/ckpt/step-00000015", "20").exit_code, 0);
  std::filesystem::copy(ledger, ledger + ".before");
  ASSERT_EQ(run_from(folder, folder / "run/ckpt/latest", "25").exit_code, 0);
  std::filesystem::rename(ledger + ".before", ledger);
  EXPECT_THAT(run_from(folder, "auto", "30").out, HasSubstr("resume  step 25 from "));
}

TEST(Resume, WithNothingButCheckpointsOfOtherHistoriesDoesNotStartOver) {
  const TemporaryFolder folder;
  ASSERT_EQ(gputrain({"run", write_gpt_job(folder), "--output-dir", folder / "run"}).exit_code, 0);
  std::ofstream(folder / "run/ledger.jsonl", std::ios::app) << R"({"kind":"left","lineage":[{"id":"another"}]})"
                                                            << "\n";
  const Result result = run_from(folder, "auto", "30");
  EXPECT_EQ(result.exit_code, 5) << result.out;
  EXPECT_THAT(result.err, HasSubstr("says that it has left all of them"));
}

TEST(Resume, FromWhatWasSetAsideIsSavedBeforeItCanBeLost) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\nlog: {interval: 1}\n"),
                    ckpt = folder / "run/ckpt";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  ASSERT_EQ(run_from(folder, ckpt + "/step-00000010", "15").exit_code, 0);
  Program undone({gputrain_path(), "run", job, "--output-dir", folder / "run", "--accept", "--set",
                  "checkpoint.resume=" + ckpt + "/step-00000020.left", "--set", "train.max_steps=1000000", "--set",
                  "checkpoint.interval=null"});
  ASSERT_TRUE(undone.prints("step    21/"));
  undone.signal(SIGKILL);
  undone.wait();
  EXPECT_TRUE(std::filesystem::exists(ckpt + "/step-00000015.left-2"));  // of the way that was left for this one
  EXPECT_THAT(run_from(folder, "auto", "30").out, HasSubstr("resume  step 20 from " + ckpt));
}

TEST(Resume, FromElsewhereThatWasNeverSavedHereIsNotForgotten) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n"),
                    chosen = folder / "other/ckpt/step-00000010";
  for (const char* run : {"other", "run"}) ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / run}).exit_code, 0);
  std::ofstream(folder / "run/ledger.jsonl", std::ios::app)
      << nlohmann::json{{"kind", "left"}, {"lineage", {{{"id", "new"}}}}, {"from", chosen}}.dump() << "\n";
  for (const char* wish : {"auto", "must"}) {
    const Result refused = run_from(folder, wish, "30");
    EXPECT_EQ(refused.exit_code, 5) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("--set checkpoint.resume=" + chosen));
  }
  EXPECT_EQ(run_from(folder, chosen, "30").exit_code, 0);
  EXPECT_THAT(run_from(folder, "auto", "35").out, HasSubstr("resume  step 30 "));
}

TEST(Resume, FromAnotherRunLeavesAllOfThisOneBehindAndRollsBackToThat) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n");
  for (const char* run : {"other", "run"}) ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / run}).exit_code, 0);
  const Result result =
      gputrain({"run", job, "--output-dir", folder / "run", "--accept", "--set",
                "checkpoint.resume=" + (folder / "other/ckpt/step-00000010"), "--set", "checkpoint.interval=null",
                "--set", "optimizer.lr=1e30", "--set", "train.nonfinite=rollback", "--set", "train.max_rollbacks=1"});
  EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
  EXPECT_THAT(result.out + result.err, HasSubstr("back    to the weights of step 10"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/ckpt/step-00000005.left"));
}

TEST(Resume, TakesNoCheckpointWhoseManifestNamesAnotherStepThanItsState) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n"),
                    ckpt = folder / "run/ckpt";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::filesystem::copy(ckpt + "/step-00000010", ckpt + "/step-00000099");
  const std::string index = ckpt + "/step-00000099/manifest.json";
  auto manifest = checkpoint::parse_manifest(read_file(index), index);
  manifest.step = 99;
  std::ofstream(index) << checkpoint::to_json(manifest);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_THAT(result.err, HasSubstr("its state is that of step 10"));
  EXPECT_THAT(result.out, HasSubstr("resume  step 20"));
}

TEST(Resume, MustFailsWithExitCode5WithoutACheckpoint) {
  const TemporaryFolder folder;
  const Result result =
      gputrain({"run", write_gpt_job(folder), "--output-dir", folder / "run", "--set", "checkpoint.resume=must"});
  EXPECT_EQ(result.exit_code, 5) << result.err;
}

TEST(Resume, FromWhatIsNoCheckpointSaysWhereOneIs) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const auto resume_from = [&](const std::string& from) {
    const Result result =
        gputrain({"run", job, "--output-dir", folder / "other", "--set", "checkpoint.resume=" + from});
    EXPECT_EQ(result.exit_code, 5) << from;
    return result.err;
  };
  EXPECT_THAT(resume_from(folder / "run"), HasSubstr("run/ckpt/latest is this run's newest"));
  EXPECT_THAT(resume_from(folder / "run/ckpt"), HasSubstr("run/ckpt/latest is the newest one here"));
  EXPECT_THAT(resume_from("false"),
              HasSubstr("there is no such checkpoint\n  try: auto, must, never, or a checkpoint"));
}

TEST(Resume, NeverStartsOverAndKeepsTheEarlierRunAside) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run", "--set", "checkpoint.resume=never"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "run.1/model.safetensors"));
  EXPECT_EQ(read_file(folder / "run/model.safetensors"), read_file(folder / "run.1/model.safetensors"));
}

TEST(Resume, NeverKeepsTheEarlierRunAsideWhereALinkLeadsToIt) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  std::filesystem::create_directories(folder / "disk/run");
  std::filesystem::create_directory_symlink("disk/run", folder / "run");
  for (const char* resume : {"auto", "never"}) {
    ASSERT_EQ(
        gputrain({"run", job, "--output-dir", folder / "run", "--set", std::string("checkpoint.resume=") + resume})
            .exit_code,
        0);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "run"));
  EXPECT_TRUE(std::filesystem::exists(folder / "disk/run/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "disk/run.1/model.safetensors"));
}

TEST(Resume, RefusesAJobThatWouldGiveOtherResults) {
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

TEST(Resume, TakesAnotherRateScheduleAndPlaceOfTheDataWhenAccepted) {
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
  const auto rates = values(folder / "run/metrics.jsonl", "train/lr");
  ASSERT_EQ(rates.size(), 6U);
  EXPECT_EQ(rates[3], 3e-3);
  EXPECT_LT(rates[4], 1e-4);
}

TEST(Resume, EvaluatesAnewWhereDataValIsAnother) {
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
  EXPECT_EQ(evaluations(), evaluations_before + 1);  // the curve keeps what it has
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr("eval    20 "));
  EXPECT_THAT(other.err, HasSubstr("evaluated on other data than before"));
  const auto after = summary(run);
  EXPECT_NE(after["metrics"]["val/loss"], before["val/loss"]);
  EXPECT_EQ(after["best"]["val/loss"]["value"], after["metrics"]["val/loss"]);
  EXPECT_THAT(train("128").err, ::testing::Not(HasSubstr("other data")));
}

TEST(Resume, TakesAwayWhatACheckpointHadReplacedOnceItIsRead) {
  const TemporaryFolder folder;
  const std::vector<std::string> run{"run", write_gpt_job(folder), "--output-dir", folder / "run"};
  ASSERT_EQ(gputrain(run).exit_code, 0);
  const std::string newest = folder / "run/ckpt/step-00000020", replaced = newest + ".old.partial";
  std::filesystem::copy(newest, replaced);
  ASSERT_EQ(gputrain(run).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(replaced));
  EXPECT_TRUE(std::filesystem::exists(newest));
}

TEST(Resume, TellsWhatAnotherGlobalBatchDoesToTheEpochAtHand) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run", "--set", "train.max_steps=10"}).exit_code, 0);
  std::vector<std::string> on{"run", job, "--output-dir", folder / "run", "--set", "train.global_batch_size=4"};
  EXPECT_EQ(gputrain(on).exit_code, 2);
  on.push_back("--accept");
  const Result accepted = gputrain(on);
  ASSERT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_THAT(accepted.err, HasSubstr("the global batch was 8 samples at the checkpoint and is 4 now"));
  EXPECT_EQ(gputrain({"data", "audit", folder / "run"}).exit_code, 4);
}

/// What is said of data that has changed, which nothing but --accept takes.
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

TEST(Resume, RefusesDataThatHasGrownSinceUnlessAccepted) {
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
  EXPECT_EQ(gputrain(run).exit_code, 0);  // there is nothing left to train
}

TEST(Resume, RefusesDataThatHasClassesOfOtherNamesUnlessAccepted) {
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
  EXPECT_THAT(gputrain({"replay", run, "--step", "15"}).out, HasSubstr("the step has other labels"));
  const std::string resume = "checkpoint.resume=" + run + "/ckpt/step-00000010";
  EXPECT_THAT(refused_then_accepted({"run", job, "--output-dir", run, "--set", resume}),
              HasSubstr("its classes are not those of before, at step 10"));
}

TEST(Resume, RefusesTextOfOtherCharactersUnlessAccepted) {
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

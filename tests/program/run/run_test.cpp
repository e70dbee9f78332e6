#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "datasets/tiny_images.hpp"
#include "support/needs.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

nlohmann::json json_file(const std::string& path) { return nlohmann::json::parse(read_file(path)); }

TEST(Run, LeavesCompleteRunFolder) {
  const TemporaryFolder folder;
  const Result result = gputrain({"run", write_gpt_job(folder), "--output-dir", folder / "run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("plan    20 steps"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("\nmemory  [0-9.]+ .iB of [0-9.]+ .iB: weights "));
  EXPECT_THAT(result.out, HasSubstr("step    20/20 100.0% loss "));
  EXPECT_THAT(result.out, HasSubstr("done    20/20 steps"));
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos) << "escape codes without a terminal";
  for (const char* name : {"job.resolved.yaml", "metrics.jsonl", "model.safetensors", "summary.json",
                           "logs/rank_0000.log", "config.json"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / ("run/" + std::string(name)))) << name;
  }
  const auto summary = json_file(folder / "run/summary.json");
  EXPECT_EQ(summary["status"], "done");
  EXPECT_EQ(summary["step"], 20);
  EXPECT_EQ(summary["samples"], 160);
  EXPECT_EQ(summary["tokens"], 2560);
  EXPECT_GT(summary["throughput"]["tokens_per_second"], 0);
}

// The statistics over all ranks, here one, are compared with ATen's on samples alone.
TEST(Run, LeavesPaddingOutOfBatchStatistics) {
  const TemporaryFolder folder;
  const std::string job = folder.write("job.yaml", R"(
schema: 1
device: cpu
precision: fp64
model: {type: convnet, config: {channels: [4], hidden: [], batch_norm: true}}
data: {train: {format: synthetic, samples: 7}, val: {format: synthetic, samples: 8}, image: {size: 8}}
train: {max_epochs: 3, global_batch_size: 4}
optimizer: {type: sgd, lr: 0.1}
log: {interval: 1}
)");
  const auto measured = [&](const std::string& sync) {
    const std::string run = folder / sync;
    EXPECT_EQ(gputrain({"run", job, "--output-dir", run, "--set", "parallel.sync_bn=" + sync}).exit_code, 0);
    std::vector<double> all = losses_of(run);
    EXPECT_EQ(all.size(), 6U);
    all.push_back(json_file(run + "/summary.json")["metrics"]["val/loss"]);  // by the running statistics
    return all;
  };
  EXPECT_THAT(measured("false"), ::testing::Pointwise(::testing::DoubleNear(1e-9), measured("true")));
}

TEST(Run, LogsToTheSinksThatTheJobNames) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const auto run = [&](const std::string& sinks) {
    const Result result = gputrain({"run", job, "--output-dir", folder / sinks, "--set", "log.sinks=[" + sinks + "]"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(read_file(folder / (sinks + "/logs/rank_0000.log")), HasSubstr("step    20/20"));
    return result.out;
  };
  const std::string console = run("console"), file = run("jsonl");
  EXPECT_THAT(console, HasSubstr("step    20/20"));
  EXPECT_THAT(console, ::testing::Not(HasSubstr("metrics.jsonl")));
  EXPECT_FALSE(fs::exists(folder / "console/metrics.jsonl"));
  EXPECT_THAT(file, ::testing::Not(HasSubstr("step    ")));
  EXPECT_THAT(file, HasSubstr("done    20/20 steps"));
  EXPECT_THAT(read_file(folder / "jsonl/metrics.jsonl"), HasSubstr("\"step\":20"));
  EXPECT_EQ(gputrain({"run", job, "--output-dir", folder / "none", "--set", "log.sinks=[file]"}).exit_code, 2);
}

// With random labels the loss only rises, but sometimes one more image is right.
TEST(Run, MarksBestEvaluationByCheckpointMetric) {
  const TemporaryFolder folder;
  const std::string job = folder.write(
      "job.yaml",
      "model: {type: mlp, config: {hidden: [8]}}\n"
      "data: {train: {format: synthetic, samples: 64, num_classes: 4, learnable: false}, val: {split: 50%}, "
      "image: {size: 4, channels: 1}}\n"
      "train: {max_steps: 30, global_batch_size: 8}\noptimizer: {lr: 1e-2}\neval: {interval: 2}\n");
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  double best = -1;
  int bests = 0;
  std::istringstream lines(read_file(folder / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json["kind"] != "eval") continue;
    const std::string start = "\neval    " + std::to_string(json["step"].get<int>()) + " ";
    const size_t at = result.out.find(start);
    ASSERT_NE(at, std::string::npos);
    const std::string said = result.out.substr(at + 1, result.out.find('\n', at + 1) - at);
    const bool is_best = json["val/top1"].get<double>() > best;
    EXPECT_EQ(said.find(" best (was ") != std::string::npos, is_best && best >= 0) << said;
    bests += is_best && best >= 0 ? 1 : 0;
    if (is_best) best = json["val/top1"];
  }
  EXPECT_GT(bests, 0);
}

TEST(Run, LowersLoss) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 1}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run", "--set", "train.max_steps=60"}).exit_code, 0);
  std::istringstream lines(read_file(folder / "run/metrics.jsonl"));
  double first = 0, last = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object["kind"] != "train") continue;
    if (first == 0) first = object["train/loss"];
    last = object["train/loss"];
  }
  EXPECT_LT(last, 0.8 * first);
}

TEST(Run, RepeatsFromResolvedJob) {
  const TemporaryFolder folder;
  ASSERT_EQ(gputrain({"run", write_gpt_job(folder), "--output-dir", folder / "a"}).exit_code, 0);
  const Result again = gputrain({"run", folder / "a/job.resolved.yaml", "--output-dir", folder / "b"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(read_file(folder / "a/model.safetensors"), read_file(folder / "b/model.safetensors"));
}

TEST(Run, ChecksAllAndWritesNothingInDryRun) {
  const TemporaryFolder folder;
  const Result result = gputrain({"run", write_gpt_job(folder), "--dry-run", "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("all checks passed"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

/// The files of a folder, with their modification times.
std::map<std::string, fs::file_time_type> state_of(const std::string& folder) {
  std::map<std::string, fs::file_time_type> state;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) state[entry.path()] = entry.last_write_time();
  return state;
}

class DryRunFolder : public ::testing::Test {
 protected:
  std::vector<std::string> run(const std::string& folder, const std::vector<std::string>& more) const {
    std::vector<std::string> words{"run", job_, "--output-dir", folder};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Result dry(const std::string& folder, std::vector<std::string> more = {}) const {
    more.emplace_back("--dry-run");
    return gputrain(run(folder, more));
  }

  TemporaryFolder folder_;
  std::string job_ = write_gpt_job(folder_);
};

TEST_F(DryRunFolder, IsRefusedIfNotWritable) {
  GPUTRAIN_SKIP_FOR(testing::no_own_mounts());
  const std::string disk = folder_ / "disk";
  ASSERT_EQ(gputrain(run(disk + "/run", {})).exit_code, 0);
  const std::string mount = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"";
  for (const std::vector<std::string>& more : {run(disk + "/run", {}), run(disk + "/another/run", {}),
                                               run(disk + "/run", {"--set", "checkpoint.resume=never"})}) {
    std::vector<std::string> command{"unshare", "-m", "sh", "-c", mount + " && exec \"$@\"", disk, gputrain_path()};
    command.insert(command.end(), more.begin(), more.end());
    command.emplace_back("--dry-run");
    const Result result = Program(command).wait();
    EXPECT_EQ(result.exit_code, 6) << result.out;
    EXPECT_THAT(result.err, HasSubstr(more[3] + ": cannot use the run folder: Read-only file system"));
  }
  folder_.write("busy/ckpt", "a file where a folder should be");
  EXPECT_EQ(dry(folder_ / "busy").exit_code, 6);
}

TEST_F(DryRunFolder, IsSearchedLikeARunAndLeftAsIs) {
  const std::string trained = folder_ / "run", fresh = folder_ / "fresh";
  ASSERT_EQ(gputrain(run(trained, {})).exit_code, 0);
  const std::string resume = "checkpoint.resume=";
  for (const auto& [folder, set, code] : {std::tuple(fresh, resume + "must", 5),
                                          {fresh, resume + trained, 5},
                                          {fresh, resume + "nowhere", 5},
                                          {trained, "model.config.n_embd=16", 2},
                                          {trained, "optimizer.lr=1", 2},
                                          {trained, "data.val.split=20%", 2}}) {
    const auto before = state_of(trained);
    const Result predicted = dry(folder, {"--set", set});
    EXPECT_EQ(predicted.exit_code, code) << set << predicted.out;
    EXPECT_EQ(state_of(trained), before);
    EXPECT_FALSE(fs::exists(fresh));
    EXPECT_EQ(predicted.err, gputrain(run(folder, {"--set", set})).err);
    fs::remove_all(fresh);
  }
}

TEST_F(DryRunFolder, MayBeInUseByARun) {
  const std::string trained = folder_ / "run", newest = trained + "/ckpt/step-00000020";
  ASSERT_EQ(gputrain(run(trained, {})).exit_code, 0);
  const int lock = ::open((trained + "/lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(dry(trained).out, HasSubstr("resume  step 20 from " + newest));
  EXPECT_THAT(dry(folder_ / "fresh").out, HasSubstr("resume  none found in "));
  EXPECT_EQ(dry(trained, {"--set", "optimizer.lr=1", "--accept"}).exit_code, 0);
  fs::resize_file(newest + "/model.safetensors", 100);
  EXPECT_THAT(dry(trained).err, HasSubstr("none of the run's checkpoints is good"));
  EXPECT_TRUE(fs::exists(newest));
  ::close(lock);
}

TEST(Run, Exits4WhenLossIsNotFinite) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const Result result =
      gputrain({"run", job, "--output-dir", folder / "run", "--set", "optimizer.lr=1e300", "--set", "precision=fp64"});
  EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("not finite"));
  EXPECT_THAT(result.err, HasSubstr("try: lower optimizer.lr"));
  EXPECT_EQ(json_file(folder / "run/summary.json")["status"], "failed");
  EXPECT_EQ(json_file(folder / "run/summary.json")["exit_code"], 4);
}

TEST(Run, Exits4OnMissedExpectationWithVerify) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "expect: {val/loss: [0, 0.001]}\n");
  EXPECT_EQ(gputrain({"run", job, "--output-dir", folder / "a"}).exit_code, 0);
  const Result result = gputrain({"run", job, "--verify", "--output-dir", folder / "b"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.out, HasSubstr("MISSED"));
}

TEST(Run, Exits3OnMissingDataAndStartsNothing) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const Result result =
      gputrain({"run", job, "--output-dir", folder / "run", "--set", "data.train.path=/nowhere/x.txt"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("/nowhere/x.txt"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(Run, ReportsMissingWeightsFirst) {
  const TemporaryFolder folder;
  const std::string job = folder.write("job.yaml",
                                       "model: {type: gpt, pretrained: /nowhere/gpt2}\n"
                                       "data: {train: {path: " +
                                           write_text(folder) + ", format: text}}\ntrain: {max_steps: 1}\n");
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("/nowhere/gpt2: no such file or folder"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(Run, RecordsCharactersInItsWeights) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), weights = folder / "run/model.safetensors";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  EXPECT_EQ(gputrain({"eval", job, "--weights", weights}).exit_code, 0);
  std::string text = read_file(folder / "text.txt");
  std::replace(text.begin(), text.end(), 'c', 'z');  // as many characters, but most have other numbers
  const std::string other = "data.train.path=" + folder.write("other.txt", text);
  const Result refused = gputrain({"eval", job, "--weights", weights, "--set", other});
  EXPECT_EQ(refused.exit_code, 3) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("is \"c\" to these weights and \"e\" in this data"));
  const Result begun =
      gputrain({"run", job, "--output-dir", folder / "tuned", "--set", other, "--set", "model.pretrained=" + weights});
  EXPECT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_THAT(begun.err, HasSubstr("model.pretrained was trained on other data: character"));
}

TEST(Run, TakesSampleLengthFromData) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const std::vector<std::string> unset{"run", job, "--dry-run", "--set", "model.config.block_size=null"};
  auto with_length = unset;
  with_length.insert(with_length.end(), {"--set", "data.text.max_length=24"});
  const Result taken = gputrain(with_length);
  EXPECT_EQ(taken.exit_code, 0) << taken.err;
  EXPECT_THAT(taken.out, HasSubstr(" windows of 24 "));
  const Result refused = gputrain(unset);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("model.config.block_size: the length of a sample is unknown"));
}

TEST(Run, Exits6WhenFolderBlocksSummary) {
  const TemporaryFolder folder;
  folder.write("run/summary.json/full", "");
  folder.write("run/ledger.jsonl", "");
  const Result result = gputrain({"run", write_gpt_job(folder), "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("summary.json"));
}

TEST(Run, ReportsFileSizeLimitLikeFullDisk) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const Result result = Program({"/bin/sh", "-c", "ulimit -f 64 && exec \"$0\" run \"$1\" --output-dir \"$2\"",
                                 gputrain_path(), job, folder / "run"})
                            .wait();
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_THAT(result.err, HasSubstr("cannot save: " + folder / "run/ckpt"));
  EXPECT_THAT(result.err, HasSubstr("File too large"));
}

TEST(Run, Exits3OnBadSampleInNonUtf8Folder) {
  const TemporaryFolder folder;
  folder.write("images/caf\xe9/1.jpg", "no image");
  const std::string job = folder.write("job.yaml",
                                       "device: cpu\nmodel: {type: mlp, config: {hidden: [8]}}\n"
                                       "data: {train: {path: " +
                                           folder / "images" +
                                           ", format: imagefolder}, image: {size: 8}}\n"
                                           "train: {max_steps: 4, global_batch_size: 1}\n");
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("caf?/1.jpg: neither JPEG nor PNG"));
  EXPECT_EQ(json_file(folder / "run/summary.json")["exit_code"], 3);
}

TEST(Run, LeavesOutItsOwnFoldersAmongClasses) {
  const TemporaryFolder folder;
  for (const char* name : {"a/1.png", "b/1.png"}) folder.write(name, datasets::png_of({0, 0, 255}));
  folder.write("runs/new/logs/start_1/rank_0000.log", "a launcher writes this before the run begins");
  folder.write("mirror/notes.txt", "of a checkpoint's copy");
  const std::string job = folder.write(
      "job.yaml", "device: cpu\nmodel: {type: mlp, config: {hidden: [8]}}\ndata: {train: {path: " +
                      folder.path().string() + ", format: imagefolder}}\ncheckpoint: {mirror: " + folder / "mirror" +
                      "}\ntrain: {max_steps: 4, global_batch_size: 2}\n");
  const Result result = gputrain({"run", job, "--dry-run", "--output-dir", folder / "runs/new"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 images 4x4x3, 2 classes"));
}

TEST(Run, OpensMoreFilesThanTheSoftLimit) {
  const TemporaryFolder folder;
  for (int i = 0; i < 100; ++i) folder.write("tokens/train_" + std::to_string(i) + ".bin", std::string(64, '\1'));
  const std::string job =
      folder.write("job.yaml",
                   "device: cpu\nmodel: {type: gpt, config: {n_layer: 1, n_head: 1, n_embd: 8, block_size: 16}}\n"
                   "data: {train: {path: " +
                       folder / "tokens" +
                       ", format: tokens, vocab_size: 300}}\n"
                       "train: {max_steps: 1, global_batch_size: 1}\n");
  Program program({"/bin/sh", "-c", "ulimit -Sn 64 && exec \"$0\" run \"$1\" --dry-run", gputrain_path(), job});
  const Result result = program.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(Run, PredictsEndByTheFirstLimit) {
  const TemporaryFolder folder;
  const std::string job =
      write_gpt_job(folder, "log: {interval: 1}\n", "{max_steps: 1000000000, max_time: 1s, global_batch_size: 8}");
  const std::string out = gputrain({"run", job, "--output-dir", folder / "run"}).out;
  EXPECT_THAT(out, HasSubstr(" epochs, or 1.0s of training if that is less  "));
  EXPECT_THAT(out, ::testing::ContainsRegex("step    1/.* eta [0-9]+ms\n"));
}

TEST(Run, WarnsOfMicroBatchAboveShare) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const auto told = [&](const std::string& size) {
    return gputrain({"run", job, "--dry-run", "--set", "train.micro_batch_size=" + size}).err;
  };
  EXPECT_THAT(told("9"), HasSubstr("train.micro_batch_size is more than a rank's share of the global batch: that is "
                                   "8 samples"));
  EXPECT_EQ(told("8"), "");
}

TEST(Run, WarnsOfKeysWithoutEffect) {
  const TemporaryFolder folder;
  const std::string job =
      folder.write("job.yaml",
                   "model: {type: gpt, config: {n_layer: 1, n_head: 1, n_embd: 8, block_size: 16}}\n"
                   "data: {train: {path: " +
                       write_text(folder) +
                       ", format: text, include: ['*.txt']}}\n"
                       "train: {max_steps: 20, global_batch_size: 8}\nlr_scheduler: {type: cosine, warmup: 50}\n"
                       "eval: {interval: 5}\n");
  const std::string text = gputrain({"run", job, "--output-dir", folder / "run"}).err;
  EXPECT_THAT(text, ::testing::ContainsRegex("warning: .*job.yaml:5:[0-9]+: eval.interval has no effect: there is no"));
  EXPECT_THAT(text, ::testing::ContainsRegex("job.yaml:4:[0-9]+: lr_scheduler.warmup is longer than the run: "
                                             "training ends after 20 steps, at a rate of 3.92e-4 instead of 1e-3"));
  EXPECT_THAT(text, ::testing::ContainsRegex("job.yaml:2:[0-9]+: data.train.include has no effect"));
  EXPECT_THAT(gputrain({"run", folder / "run/job.resolved.yaml", "--dry-run"}).err,
              ::testing::Not(HasSubstr("data.image")))
      << "its other keys have their defaults";
  const std::string none = gputrain({"run", job, "--dry-run", "--set", "data.val.split=10%", "--set",
                                     "lr_scheduler.warmup=19", "--set", "data.train.include=[]"})
                               .err;
  EXPECT_THAT(none, ::testing::Not(HasSubstr("warning")));
  EXPECT_THAT(gputrain({"run", job, "--dry-run", "--set", "data.image.augment.hflip=0.5"}).err,
              HasSubstr("data.image.augment.hflip has no effect: the data is text"));
}

TEST(Run, RefusesOtherImageSizeBeforeTraining) {
  const TemporaryFolder folder;
  const std::string job =
      folder.write("job.yaml",
                   "schema: 1\ndevice: cpu\nmodel: {type: mlp, config: {hidden: [8]}}\n"
                   "data: {train: {format: synthetic, samples: 64}, val: {format: synthetic, samples: 32},\n"
                   "       image: {size: 8, eval: {crop: 10}}}\n"
                   "train: {max_steps: 2, global_batch_size: 8}\noptimizer: {type: sgd, lr: 1e-2}\n");
  const auto dry = [&](const std::string& model) {
    return gputrain({"run", job, "--dry-run", "--set", "model=" + model});
  };
  const Result refused = dry("{type: convnet, config: {channels: [4], global_pool: none}}");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("data.image.eval.crop: images of data.val are 10x10x3, those of data.train 8x8x3"));
  EXPECT_EQ(dry("{type: mlp, config: {hidden: [8]}}").exit_code, 2);
  const Result taken = dry("{type: convnet, config: {channels: [4], global_pool: avg}}");
  EXPECT_EQ(taken.exit_code, 0) << taken.err;
}

TEST(Run, RefusesUnspellablePromptBeforeTraining) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run", "--set", "eval.sample.prompt=Ω"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("Ω"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(Run, WritesSampleThatDependsOnlyOnSeed) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "eval: {sample: {prompt: 'the ', max_new_tokens: 40}}\n");
  const auto sample_of = [&](const std::string& name) {
    const Result result = gputrain({"run", job, "--output-dir", folder / name});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const size_t begin = result.out.find("\nsample ");
    return result.out.substr(begin, result.out.find("\ndone ") - begin);
  };
  const std::string sample = sample_of("a");
  EXPECT_THAT(sample, HasSubstr("\nthe "));
  EXPECT_EQ(sample, sample_of("b"));
}

TEST(Run, ReportsBatchLargerThanDataWithoutRate) {
  const TemporaryFolder folder;
  const Result result = gputrain({"run", write_gpt_job(folder), "--output-dir", folder / "run", "--set",
                                  "train.global_batch_size=1000", "--set", "train.max_steps=1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(" accumulation, but an epoch has only "));
  EXPECT_THAT(result.out, HasSubstr("plan    1 step = 1 epoch  "));
  EXPECT_THAT(result.out, HasSubstr("\nspeed   first step after "));
}

TEST(Run, SavesWithNonFiniteEvaluation) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "eval: {interval: 5}\ncheckpoint: {interval: 5}\n");
  const Result result =
      gputrain({"run", job, "--output-dir", folder / "run", "--set", "optimizer.lr=1e200", "--set", "precision=fp32",
                "--set", "train.nonfinite=skip", "--set", "train.max_skips_in_a_row=20"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "run/ckpt/step-00000020/manifest.json"));
}

}  // namespace
}  // namespace gputrain::testing_support

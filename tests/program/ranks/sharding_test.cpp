// parallel.shard: what is sharded, saved, and needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "gputrain/device/allocation_meter.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/weights.hpp"
#include "support/checkpoints.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> shard(const std::string& what) { return {"--set", "parallel.shard=" + what}; }

class Sharding : public ::testing::TestWithParam<std::string> {
 protected:
  const std::vector<std::string> sharded_ = shard(GetParam());
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Of, Sharding, ::testing::Values("optimizer", "gradients", "parameters"),
                         [](const auto& entry) { return entry.param; });

void flip_last_bit(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char flipped = static_cast<char>(file.get() ^ 1);
  file.seekp(-1, std::ios::end);
  file.put(flipped);
}

// The 8 samples of a step at once or in turn; three ranks have 2, 3 and 3; two ranks recompute blocks.
TEST_P(Sharding, TrainsLikeOneRank) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  for (const auto& [world, accumulates] : {std::pair(2, true), {3, true}, {4, false}}) {
    const std::string output = folder_ / ("of" + std::to_string(world));
    std::vector<std::string> more = sharded_;
    if (accumulates) more.insert(more.end(), {"--set", "train.micro_batch_size=1"});
    if (world == 2) more.insert(more.end(), {"--set", "train.activation_checkpointing=block"});
    const Result result = ranks(world, job, output, more);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    expect_equal_losses(folder_ / "one/metrics.jsonl", output + "/metrics.jsonl", 1e-9);
  }
}

TEST_P(Sharding, ResumesOnAnyRankCount) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  const Result four = ranks(4, job, folder_ / "four", sharded_);
  ASSERT_EQ(four.exit_code, 0) << four.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "four/ckpt/step-00000010/optimizer-00004-of-00004.safetensors"));
  EXPECT_EQ(gputrain({"ckpt", "verify", folder_ / "four"}).exit_code, 0);
  std::vector<std::pair<int, std::vector<std::string>>> ways{{1, {}}, {2, sharded_}};
  if (GetParam() == "gradients") ways = {{3, sharded_}, {2, shard("none")}};
  if (GetParam() == "parameters") ways = {{1, {}}, {3, sharded_}, {2, shard("gradients")}};
  for (const auto& [world, more] : ways) {
    const std::string again = folder_ / ("again" + std::to_string(world) + (more == sharded_ ? "sharded" : ""));
    copy_without_the_end(folder_ / "four", again);
    const Result result = ranks(world, job, again, more);
    ASSERT_EQ(result.exit_code, 0) << world << result.err;
    EXPECT_THAT(result.out, HasSubstr("resume  step 10"));
    expect_equal_losses(folder_ / "one/metrics.jsonl", again + "/metrics.jsonl", 1e-9);
  }
}

// The folder of a checkpoint, and what is written at the end, are weights for other verbs.
TEST(ParameterSharding, LeavesWeightsThatOneProcessReads) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "one"}).exit_code, 0);
  const Result three = ranks(3, job, folder / "three", shard("parameters"));
  ASSERT_EQ(three.exit_code, 0) << three.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "three/ckpt/step-00000020/model.safetensors"));
  const auto loss_of = [&](const std::string& weights) {
    const Result result = gputrain({"eval", job, "--weights", folder / weights});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out.substr(result.out.find("val/loss"));
  };
  const std::string loss = loss_of("one/model.safetensors");
  EXPECT_EQ(loss_of("three/model.safetensors"), loss);
  EXPECT_EQ(loss_of("three/ckpt/step-00000020"), loss);
}

// One rank that goes on from the last step has the same weights, and writes them at once.
TEST(ParameterSharding, WritesTheFileOfOneRank) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 20}\n");
  const Result three = ranks(3, job, folder / "three", shard("parameters"));
  ASSERT_EQ(three.exit_code, 0) << three.err;
  std::filesystem::copy(folder / "three", folder / "one", std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder / "one/model.safetensors");
  const Result one = gputrain({"run", job, "--output-dir", folder / "one"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("resume  step 20"));
  const std::string file = read_file(folder / "one/model.safetensors");
  EXPECT_GT(file.size(), 10000U);
  EXPECT_TRUE(read_file(folder / "three/model.safetensors") == file);
}

TEST(ParameterSharding, EndsAllRanksWhenWeightsCannotBeWritten) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: null}\n");
  std::filesystem::create_directories(folder / "run/model.safetensors.partial");  // blocks the temporary name
  RankPrograms two = start_ranks(2, job, folder / "run", shard("parameters"));
  const Result first = two[0]->wait();
  EXPECT_EQ(first.exit_code, 5) << first.err;
  EXPECT_THAT(first.err, HasSubstr("run/model.safetensors: cannot create: Is a directory"));
  EXPECT_EQ(two[1]->wait().exit_code, 5);
  EXPECT_FALSE(std::filesystem::exists(folder / "run/model.safetensors"));
}

// 12 layers of 4 MiB. All at once would be 48 MiB.
TEST(ParameterSharding, HasOneUnitInMemoryWhileWeightsAreWritten) {
  {
    const device::AllocationMeter meter;
  }  // counts tensors that are made from here on
  const TemporaryFolder folder;
  std::string hidden = "1024";
  for (int i = 0; i < 12; ++i) hidden += ", 1024";
  const std::string file =
      folder.write("job.yaml", "schema: 1\ndevice: cpu\nmodel: {type: mlp, config: {hidden: [" + hidden +
                                   "]}}\n"
                                   "data: {train: {format: synthetic, samples: 64}, image: {size: 8}}\n"
                                   "train: {max_steps: 2, global_batch_size: 12}\nparallel: {shard: parameters}\n");
  const app::Job job = app::load_job({.file = file, .set = {}, .output_dir = {}});
  app::RankContext context =
      app::simulate_rank(job, {.rank = 0, .world_size = 4}, std::make_shared<comm::CollectiveTraffic>());
  const app::JobDatasets datasets = app::open_datasets(job);
  app::BuiltModel built = app::build_model(job, datasets, context);
  const device::AllocationMeter meter;
  app::write_weights(built, context.rank(), *datasets.train, {folder.path()});
  constexpr int64_t kMebibyte = 1 << 20, kUnit = 4 * kMebibyte, kBlocks = 11 * kMebibyte;  // of the pipe to the disk
  EXPECT_GE(meter.peak_bytes(), kUnit);
  EXPECT_LE(meter.peak_bytes(), kUnit + kBlocks);
  EXPECT_GT(std::filesystem::file_size(folder / "model.safetensors"), 12 * kUnit);
}

// One replica writes; any other mesh reads.
TEST(Replicating, ResumesOnAnotherMesh) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  const std::vector<std::string> two{"--set", "parallel.shard=parameters", "--set", "parallel.replicate=2"};
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "one"}).exit_code, 0);
  const Result four = ranks(4, job, folder / "four", two);
  ASSERT_EQ(four.exit_code, 0) << four.err;
  EXPECT_THAT(four.out, HasSubstr("mesh    2 replicas of 2 shards within hosts"));
  EXPECT_TRUE(std::filesystem::exists(folder / "four/ckpt/step-00000010/model-00002-of-00002.safetensors"));
  copy_without_the_end(folder / "four", folder / "same");
  copy_without_the_end(folder / "four", folder / "three");
  ASSERT_EQ(ranks(4, job, folder / "same", two).exit_code, 0);
  EXPECT_THAT(differing_tensors(folder / "four", folder / "same"), IsEmpty());
  const Result three = ranks(3, job, folder / "three", shard("parameters"));
  ASSERT_EQ(three.exit_code, 0) << three.err;
  for (const char* run : {"same", "three"})
    expect_equal_losses(folder / "one/metrics.jsonl", folder / run + std::string("/metrics.jsonl"), 1e-9);
}

TEST(Replicating, SaysWhichMeshesThereAre) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: null}\n");
  const auto refused = [&](const char* replicas) {
    const Result result =
        ranks(4, job, folder / "out",
              {"--set", "parallel.shard=gradients", "--set", std::string("parallel.replicate=") + replicas});
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_THAT(refused("3"), HasSubstr("4 ranks cannot be 3 replicas of two or more shards each"));
  EXPECT_THAT(refused("4"), HasSubstr("1 or 2, or another number of ranks"));
}

/// LoRA beside a model that was trained before.
class AdapterSharding : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(gputrain({"run", job_, "--output-dir", folder_ / "base", "--set", "train.max_steps=2"}).exit_code, 0);
  }
  Result run(int world, const std::string& name, const std::string& what,
             const std::vector<std::string>& settings = {}) const {
    auto more = shard(what);
    for (const std::string& setting : {"model.pretrained=" + folder_ / "base", std::string("model.adapter.type=lora"),
                                       std::string("optimizer.lr=1e-2")})
      more.insert(more.end(), {"--set", setting});
    for (const std::string& setting : settings) more.insert(more.end(), {"--set", setting});
    return ranks(world, job_, folder_ / name, more);
  }
  std::string frozen_file(const std::string& run) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / (run + "/ckpt"))) {
      if (entry.path().filename().string().starts_with("frozen-")) return entry.path();
    }
    return "";
  }

  const TemporaryFolder folder_;
  const std::string job_ = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
};

TEST_F(AdapterSharding, SavesAndResumesOnAnyRankCount) {
  ASSERT_EQ(run(1, "one", "none", {"model.adapter.merge=true"}).exit_code, 0);
  const Result three = run(3, "three", "parameters", {"model.adapter.merge=true", "eval.sample={max_new_tokens: 8}"});
  ASSERT_EQ(three.exit_code, 0) << three.err;
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "three/metrics.jsonl", 1e-9);
  // The frozen weights are those of one rank bit for bit, and so is the name of their file.
  EXPECT_EQ(std::filesystem::path(frozen_file("three")).filename(),
            std::filesystem::path(frozen_file("one")).filename());
  EXPECT_EQ(gputrain({"ckpt", "verify", folder_ / "three"}).exit_code, 0);
  for (const auto& [world, what] : {std::pair(2, "parameters"), {1, "none"}}) {
    const std::string again = "again" + std::to_string(world) + what;
    copy_without_the_end(folder_ / "three", folder_ / again);
    const Result result = run(world, again, what);
    ASSERT_EQ(result.exit_code, 0) << again << result.err;
    EXPECT_THAT(result.out, HasSubstr("resume  step 10"));
    expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / (again + "/metrics.jsonl"), 1e-9);
  }
  const auto loss_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", job_, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result result = gputrain(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out).at("val/loss").get<double>();
  };
  const double merged = loss_of({"--weights", folder_ / "three/model.safetensors"});
  EXPECT_NEAR(merged, loss_of({"--weights", folder_ / "one/model.safetensors"}), 1e-9);
  for (const std::string name : {"three", "again2parameters"}) {
    const double adapted = loss_of({"--weights", folder_ / (name + "/adapter"), "--set", "model.adapter.type=lora",
                                    "--set", "model.pretrained=" + folder_ / "base"});
    EXPECT_NEAR(adapted, merged, 1e-9) << name;
  }
}

TEST_F(AdapterSharding, StaysWithTheWeightsItBeganWith) {
  ASSERT_EQ(run(2, "run", "parameters", {"train.max_steps=10"}).exit_code, 0);
  ASSERT_EQ(
      gputrain({"run", job_, "--output-dir", folder_ / "base", "--set", "train.max_steps=3", "--accept"}).exit_code, 0);
  const Result refused = run(2, "run", "parameters", {"train.max_steps=10"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("other values than those that the adapter is trained on"));
}

TEST_P(Sharding, ResumesWhatOneRankSaved) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  copy_without_the_end(folder_ / "one", folder_ / "two");
  const Result result = ranks(2, job, folder_ / "two", sharded_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "two/metrics.jsonl", 1e-9);
}

// Bit for bit: this fails if any state is not saved or not restored.
TEST_P(Sharding, ResumesBitForBitOnSameRankCount) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  ASSERT_EQ(ranks(3, job, folder_ / "whole", sharded_).exit_code, 0);
  copy_without_the_end(folder_ / "whole", folder_ / "cut");
  ASSERT_EQ(ranks(3, job, folder_ / "cut", sharded_).exit_code, 0);
  EXPECT_THAT(differing_tensors(folder_ / "whole", folder_ / "cut"), IsEmpty());
}

// A file that rank 0 does not read may be damaged too.
TEST_P(Sharding, SkipsDamageThatOnlyOneRankSees) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 5, keep_last: 4}\n");
  ASSERT_EQ(ranks(3, job, folder_ / "whole", sharded_).exit_code, 0);
  std::filesystem::copy(folder_ / "whole", folder_ / "damaged", std::filesystem::copy_options::recursive);
  flip_last_bit(folder_ / "damaged/ckpt/step-00000020/optimizer-00003-of-00003.safetensors");
  flip_last_bit(folder_ / "damaged/ckpt/step-00000015/optimizer-00002-of-00003.safetensors");
  const Result result = ranks(3, job, folder_ / "damaged", sharded_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 10 "));
  EXPECT_THAT(result.err, HasSubstr("optimizer-00003-of-00003.safetensors: rank 2 says: damaged: its hash differs; "
                                    "it is now step-00000020.bad"));
  EXPECT_THAT(result.err, HasSubstr("it is now step-00000015.bad"));
  EXPECT_THAT(differing_tensors(folder_ / "whole", folder_ / "damaged"), IsEmpty());
}

nlohmann::json summary_of(const std::string& run) { return nlohmann::json::parse(read_file(run + "/summary.json")); }

/// Makes AddressSanitizer, if present, release freed memory at once.
struct NoQuarantine {
  NoQuarantine() { ::setenv("ASAN_OPTIONS", "quarantine_size_mb=0:thread_local_quarantine_size_kb=0", 1); }
  ~NoQuarantine() { ::unsetenv("ASAN_OPTIONS"); }
};

// 24 layers of 4 MiB, trained without momentum. Each of three ranks has 32 MiB of the gradient instead of 96, and a few
// buckets of 4 MiB; then also 32 MiB of the weights and a few units. The kernel's peak memory of the process must show
// most of the difference.
TEST(GradientSharding, SavesMemoryInEachProcess) {
  const NoQuarantine before_the_programs_start;
  const TemporaryFolder folder;
  std::string hidden = "1024";
  for (int i = 0; i < 24; ++i) hidden += ", 1024";
  const std::string job =
      folder.write("job.yaml", "schema: 1\ndevice: cpu\nmodel: {type: mlp, config: {hidden: [" + hidden +
                                   "]}}\n"
                                   "data: {train: {format: synthetic, samples: 64}, image: {size: 8}}\n"
                                   "train: {max_steps: 2, global_batch_size: 12, micro_batch_size: 2}\n"
                                   "optimizer: {type: sgd, lr: 1e-3}\nparallel: {bucket_cap_mb: 4}\n"
                                   "checkpoint: {interval: null}\n");
  constexpr int64_t kMebibyte = 1 << 20;
  std::map<std::string, nlohmann::json> summaries;
  for (const std::string what : {"optimizer", "gradients", "parameters"}) {
    const Result result = ranks(3, job, folder / what, shard(what));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    summaries[what] = summary_of(folder / what);
  }
  const auto peak = [&](const char* what) { return summaries[what].at("peak_memory_bytes").get<int64_t>(); };
  EXPECT_LT(peak("gradients") + 40 * kMebibyte, peak("optimizer"));
  EXPECT_LT(peak("parameters") + 40 * kMebibyte, peak("gradients"));
  EXPECT_NEAR(summaries["parameters"]["metrics"]["train/loss"], summaries["gradients"]["metrics"]["train/loss"], 1e-5);
  EXPECT_NEAR(summaries["gradients"]["metrics"]["train/loss"], summaries["optimizer"]["metrics"]["train/loss"], 1e-5);
  // The cost: the gradient is sent for each of two micro-batches, the weights once.
  const auto sent = [&](const char* what) {
    return summaries[what]["communication"].at("bytes_per_step").get<double>();
  };
  EXPECT_NEAR(2.0 * sent("gradients"), 3.0 * sent("optimizer"), 4);  // bytes, because of rounding
  // Weights are sent twice in each of two passes, but for the last layer, which is small.
  EXPECT_NEAR(2.0 * sent("parameters"), 6.0 * sent("optimizer"), 1e-3 * sent("optimizer"));
}

}  // namespace
}  // namespace gputrain::testing_support

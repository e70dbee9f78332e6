// Predictions of a dry run for many ranks, compared with real ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "comm/rank_processes.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/allocation_meter.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "gputrain/estimate/dry_run_estimate.hpp"
#include "gputrain/setup/fixed_memory.hpp"
#include "gputrain/setup/training_loop.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

using Settings = std::vector<std::string>;

std::vector<std::string> with(std::vector<std::string> arguments, const Settings& settings) {
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  return arguments;
}

Result dry_run(const std::string& job, int ranks, const Settings& settings, const std::vector<std::string>& more = {}) {
  auto arguments = with({"run", job, "--dry-run", "--world-size", std::to_string(ranks)}, settings);
  arguments.insert(arguments.end(), more.begin(), more.end());
  return gputrain(arguments, {{"OMP_NUM_THREADS", "1"}});
}

json predicted(const std::string& job, int ranks, const Settings& settings) {
  const Result result = dry_run(job, ranks, settings, {"--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out);
}

/// Trains for two steps with the code of a run, and prints the memory they took.
const gputrain::testing::RankBody train_two_steps("train two steps", [] {
  std::istringstream lines(std::getenv("SETTINGS"));
  app::JobRequest request{.file = std::getenv("JOB_FILE"), .set = {}, .output_dir = {}};
  for (std::string line; std::getline(lines, line);) request.set.push_back(line);
  const app::Job job = app::load_job(request);
  app::RankContext context = app::create_rank_context(job);
  { const device::AllocationMeter meter; }  // so that it counts weights that are gathered later
  app::TrainingSetup setup(job, std::move(context), [&] { return app::open_datasets(job); });

  const auto options = app::loader_options(job.spec(), *setup.datasets.train, setup.context, setup.plan.batch);
  int64_t samples = 0;
  {
    data::Loader loader(setup.datasets.train, options);
    for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) samples += loader.next_step().samples;
  }
  train::Progress progress;
  const device::AllocationMeter meter;
  app::TrainingLoop(job.spec(), setup, {}, [] {}).run(progress, {}, 2);
  const auto fixed = app::fixed_memory(setup.built, setup.optimizer_stack);
  const json told{{"weights", fixed.parameters},
                  {"borrowed_weights", fixed.borrowed},
                  {"frozen_weights", fixed.frozen},
                  {"working_copy", fixed.working_copy},
                  {"gradients", fixed.gradients},
                  {"optimizer", fixed.optimizer_state},
                  {"live", meter.peak_bytes()},
                  {"handed_out", device::host_allocator_facts().peak_in_use_bytes},
                  {"samples", samples}};
  std::printf("%s\n", told.dump().c_str());
  std::fflush(stdout);
  setup.context.groups.control().barrier("end");
  return 0;
});

std::vector<json> trained(const std::string& job, int ranks, const Settings& settings) {
  std::string lines;
  for (const std::string& setting : settings) lines += setting + "\n";
  gputrain::testing::RankProcesses processes("train two steps", ranks, {{"JOB_FILE", job}, {"SETTINGS", lines}});
  std::vector<json> told;
  for (const auto& result : processes.finish(std::chrono::seconds(120))) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    told.push_back(json::parse(result.output, nullptr, false));
  }
  return told;
}

/// The largest value of all ranks.
int64_t most(const std::vector<json>& ranks, const char* key) {
  int64_t value = 0;
  for (const json& rank : ranks) value = std::max(value, rank.value(key, int64_t{-1}));
  return value;
}

int64_t fewest(const std::vector<json>& ranks, const char* key) {
  int64_t value = INT64_MAX;
  for (const json& rank : ranks) value = std::min(value, rank.value(key, int64_t{-1}));
  return value;
}

struct Kind {
  std::string name;
  std::string model;  // model and data

  friend void PrintTo(const Kind& it, std::ostream* to) { *to << it.name; }
};

const Kind kGpt{"Gpt",
                "model: {type: gpt, config: {n_layer: 4, n_head: 4, n_embd: 256, block_size: 64, vocab_size: 256}}\n"
                "data: {train: {path: '', format: synthetic, samples: 203}}\n"};
const Kind kFrozenGpt{"FrozenGpt",
                      "model: {type: gpt, freeze: ['*', '!*.c_attn.*'], "
                      "config: {n_layer: 4, n_head: 4, n_embd: 256, block_size: 64, vocab_size: 256}}\n"
                      "data: {train: {path: '', format: synthetic, samples: 203}}\n"};
const Kind kResnet{"Resnet",
                   "model: {type: resnet18, config: {num_classes: 10}}\n"
                   "data: {train: {path: '', format: synthetic, samples: 203}, image: {size: 64}}\n"};

std::string job_of(const Kind& kind) {
  return "schema: 1\nprecision: fp32\ndevice: cpu\n" + kind.model +
         "train: {max_steps: 2}\noptimizer: {type: adamw, lr: 1e-4}\n";
}

class DryRunMemory : public ::testing::TestWithParam<std::tuple<Kind, int, const char*, int>> {
 protected:
  std::string write_job(const Kind& kind) { return folder_.write("job.yaml", job_of(kind)); }
  TemporaryFolder folder_;
};

// Arenas match exactly; the other tensors of a step within 15 % of the largest value of all ranks.
TEST_P(DryRunMemory, MatchesMemoryOfRealRanks) {
  const auto& [kind, ranks, shard, micro] = GetParam();
  const std::string job = write_job(kind);
  const bool is_on_a_mesh = shard == std::string("mesh");
  Settings settings{std::string("parallel.shard=") + (is_on_a_mesh ? "parameters" : shard),
                    "train.micro_batch_size=" + std::to_string(micro),
                    "train.global_batch_size=" + std::to_string(2 * micro * ranks)};
  if (is_on_a_mesh) settings.insert(settings.end(), {"parallel.replicate=2", "parallel.context=2"});
  const json page = predicted(job, ranks, settings), &memory = page["memory"], &data = page["data"];
  const auto real = trained(job, ranks, settings);
  for (const char* key : {"weights", "frozen_weights", "working_copy", "gradients", "optimizer"})
    EXPECT_EQ(memory[key], most(real, key)) << key;
  const auto live = static_cast<double>(most(real, "live")), handed_out = static_cast<double>(most(real, "handed_out"));
  const double activations = memory["activations"];
  EXPECT_NEAR(activations, live, 0.15 * live) << memory;
  // A small model may have its peak while it is built, and units that are gathered and freed leave gaps.
  if (kind.name == "Gpt" && !is_on_a_mesh && std::string(shard) != "parameters") {
    EXPECT_NEAR(activations, handed_out, 0.15 * handed_out) << memory;
  }
  EXPECT_EQ(memory["micro_batch"], micro);
  EXPECT_EQ(data["samples_per_rank"]["fewest"], fewest(real, "samples"));
  EXPECT_EQ(data["samples_per_rank"]["most"], most(real, "samples"));
}

std::string name_of(const ::testing::TestParamInfo<DryRunMemory::ParamType>& test) {
  const auto& [kind, ranks, shard, micro] = test.param;
  return kind.name + std::to_string(ranks) + shard + std::to_string(micro);
}

INSTANTIATE_TEST_SUITE_P(OfText, DryRunMemory,
                         ::testing::Combine(::testing::Values(kGpt), ::testing::Values(2, 4),
                                            ::testing::Values("none", "optimizer", "parameters"),
                                            ::testing::Values(6, 14)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OnAMesh, DryRunMemory,
                         ::testing::Combine(::testing::Values(kGpt), ::testing::Values(4), ::testing::Values("mesh"),
                                            ::testing::Values(6)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OfFrozen, DryRunMemory,
                         ::testing::Combine(::testing::Values(kFrozenGpt), ::testing::Values(2, 4),
                                            ::testing::Values("parameters"), ::testing::Values(6)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OfImages, DryRunMemory,
                         ::testing::Combine(::testing::Values(kResnet), ::testing::Values(2),
                                            ::testing::Values("none", "optimizer"), ::testing::Values(6, 14)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OfImagesOnFour, DryRunMemory,
                         ::testing::Combine(::testing::Values(kResnet), ::testing::Values(4),
                                            ::testing::Values("optimizer"), ::testing::Values(14)),
                         name_of);

// The first stage holds most micro-batches, the last one computes the losses; it also has a copy of the embedding.
TEST(DryRunOfStages, MatchesMemoryOfBothEnds) {
  const TemporaryFolder folder;
  const std::string job = folder.write("job.yaml", job_of(kGpt));
  for (const int parts : {1, 2}) {
    const Settings settings{"parallel.pipeline=2", "parallel.virtual_stages=" + std::to_string(parts),
                            "parallel.shard=optimizer", "train.micro_batch_size=4",
                            "train.gradient_accumulation_steps=4"};
    const json page = predicted(job, 4, settings);
    const auto real = trained(job, 4, settings);
    ASSERT_EQ(real.size(), 4U);
    for (const auto& [memory, first] :
         {std::pair(page["memory"], 0U), std::pair(page["memory_of_later_stages"].back(), 2U)}) {
      const std::vector<json> stage(real.begin() + first, real.begin() + first + 2);
      for (const char* key : {"weights", "borrowed_weights", "gradients", "optimizer"})
        EXPECT_EQ(memory[key], most(stage, key)) << key << first;
      const auto live = static_cast<double>(most(stage, "live"));
      EXPECT_NEAR(memory["activations"], live, 0.15 * live) << memory;
    }
    EXPECT_GT(page["memory_of_later_stages"].back()["borrowed_weights"], 0);
  }
}

// Extrapolates from small micro-batches if a large one would take too long.
TEST(Forecast, ExtrapolatesActivationsFromSmallBatches) {
  const TemporaryFolder folder;
  for (const auto& [kind, tried] : {std::pair(kGpt, 2), std::pair(kResnet, 8)}) {
    const std::string file = folder.write(kind.name + ".yaml", job_of(kind));
    const app::Job job = app::load_job({.file = file, .set = {"train.global_batch_size=32"}, .output_dir = {}});
    app::TrainingSetup setup(job);
    const auto one = app::take_trial_step(job, setup, 1);
    const auto estimate = app::measure_activations(job, setup, one, tried).on_device;
    EXPECT_EQ(estimate.measured_samples, tried);
    const auto real = static_cast<double>(app::take_trial_step(job, setup, 32).peak_bytes);
    EXPECT_NEAR(static_cast<double>(estimate.bytes(32)), real, 0.15 * real) << kind.name;
  }
}

class DryRun : public ::testing::Test {
 protected:
  /// 203 windows of text, one evaluation per epoch.
  std::string write_job(const std::string& extra = "") {
    return folder_.write(
        "job.yaml",
        "schema: 1\nprecision: fp32\ndevice: cpu\n"
        "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 16, vocab_size: 64}}\n"
        "data: {train: {path: '', format: synthetic, samples: 203, vocab_size: 64}, val: {split: 10%}}\n"
        "optimizer: {type: adamw, lr: 1e-4}\n" +
            extra);
  }
  TemporaryFolder folder_;
};

uint64_t tensor_bytes(const fs::path& checkpoint, int& files) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().extension() != ".safetensors") continue;
    bytes += entry.file_size();
    ++files;
  }
  return bytes;
}

TEST_F(DryRun, LoadsNoCodeThatTheJobNames) {
  for (const std::string name : {"LD_PRELOAD", "LD_LIBRARY_PATH", "GPUTRAIN_NVML", "NCCL_NET_PLUGIN"}) {
    const std::string job = write_job("train: {max_steps: 2, global_batch_size: 4}\nenv: {" + name + ": /x.so}\n");
    for (const std::vector<std::string>& command : {std::vector<std::string>{"run", job, "--dry-run"},
                                                    {"run", job, "--dry-run", "--world-size", "2"},
                                                    {"plan", job, "--world-size", "2", "--device-memory", "1GiB"}}) {
      const Result refused = gputrain(command, {{"OMP_NUM_THREADS", "1"}});
      EXPECT_EQ(refused.exit_code, 2) << command[0] << refused.out;
      EXPECT_THAT(refused.err, HasSubstr("env." + name));
    }
    const Result trusted = gputrain({"run", job, "--dry-run", "--world-size", "2"}, {{name, "/x.so"}});
    EXPECT_EQ(trusted.exit_code, 0) << trusted.err;
  }
}

TEST_F(DryRun, CountsStepsEvalsSavesAndFilesLikeARun) {
  const std::string job = write_job(
      "train: {max_epochs: 2, global_batch_size: 22}\n"
      "checkpoint: {interval: 4, keep_last: 100, keep_best: 0, keep_every: 6}\n");  // both save at step 12
  for (const int ranks : {2, 4}) {
    for (const std::string shard : {"none", "optimizer", "parameters"}) {
      const Settings settings{"parallel.shard=" + shard};
      const std::string run = folder_ / (shard + std::to_string(ranks));
      const json page = predicted(job, ranks, settings);
      const Result result = gputrain(
          with({"launch", "--nproc-per-node", std::to_string(ranks), "run", job, "--output-dir", run}, settings));
      ASSERT_EQ(result.exit_code, 0) << result.err;
      const json summary = json::parse(read_file(run + "/summary.json"));
      EXPECT_EQ(page["plan"]["steps"], summary["step"]);
      EXPECT_EQ(2 * page["data"]["used_per_epoch"].get<int64_t>(), summary["samples"]);
      std::istringstream metrics(read_file(run + "/metrics.jsonl"));
      int evaluations = 0, saves = 0, files = 0;
      for (std::string line; std::getline(metrics, line);) evaluations += json::parse(line)["kind"] == "eval";
      EXPECT_EQ(page["plan"]["evaluations"], evaluations);
      for (const auto& entry : fs::directory_iterator(run + "/ckpt"))
        saves += entry.is_directory() && !entry.is_symlink();
      EXPECT_EQ(page["plan"]["saves"], saves);
      EXPECT_FALSE(page["plan"]["saves_new_bests_besides"]);
      EXPECT_EQ(page["checkpoint"]["bytes"], tensor_bytes(run + "/ckpt/step-00000004", files));
      EXPECT_EQ(page["checkpoint"]["files"], files);
      EXPECT_NEAR(page["first_loss"].get<double>(), 4.2, 0.5);
    }
  }
}

TEST_F(DryRun, ReportsWhatRealRanksWouldRefuse) {
  const std::string job = write_job("train: {max_epochs: 1, global_batch_size: 8}\n");
  const std::vector<std::pair<Settings, std::string>> mistakes{
      {{"train.global_batch_size=3"}, "a global batch of 3 cannot be shared by 4 ranks"},
      {{"train.micro_batch_size=4", "train.gradient_accumulation_steps=1"},
       "8 is not micro_batch_size 4 x gradient_accumulation_steps 1 x 4 ranks"},
      {{"train.global_batch_size=400", "data.last=drop"}, "data.last is drop"}};
  for (const auto& [settings, message] : mistakes) {
    const Result dry = dry_run(job, 4, settings);
    EXPECT_EQ(dry.exit_code, 2) << message;
    EXPECT_THAT(dry.err, HasSubstr(message));
    auto arguments = with({gputrain_path(), "run", job, "--output-dir", folder_ / "real"}, settings);
    std::vector<std::unique_ptr<Program>> ranks;
    const std::string port = std::to_string(::gputrain::testing::free_port());
    for (const char* rank : {"0", "1", "2", "3"}) {
      ranks.push_back(std::make_unique<Program>(
          arguments, std::map<std::string, std::string>{
                         {"RANK", rank}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}}));
    }
    const Result real = ranks[0]->wait();
    EXPECT_EQ(real.exit_code, 2);
    // Rank 0 has the same words, also when it hears of another rank's end before it finds the mistake itself.
    std::istringstream said(dry.err.substr(std::string("error: ").size()));
    for (std::string line; std::getline(said, line);) EXPECT_THAT(real.err, HasSubstr(line + "\n"));
  }
}

TEST_F(DryRun, RefusesRanksBeyondHostsOrData) {
  const std::string job = write_job("train: {max_epochs: 1, global_batch_size: 4096}\n");
  const std::string hosts = "launch.hostfile=" + folder_.write("hosts.txt", "node0 slots=8\nnode1 slots=4\n");
  const auto refused = [&](int ranks, const Settings& settings, const std::vector<std::string>& more) {
    const Result result = dry_run(job, ranks, settings, more);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    return result.err;
  };
  EXPECT_THAT(
      refused(13, {hosts}, {}),
      HasSubstr("names 2 hosts for 12 ranks, fewer than --world-size 13\n  try: name more hosts, or --world-size 12"));
  EXPECT_EQ(dry_run(job, 12, {hosts}).exit_code, 0);
  EXPECT_THAT(dry_run(job, 8, {hosts}).out, HasSubstr("`gputrain launch` would start all of them, not 8"));
  EXPECT_THAT(refused(8, {"launch.hosts=[node0]"}, {}), HasSubstr("does not say how many ranks node0 takes"));
  EXPECT_EQ(dry_run(job, 8, {"launch.hosts=[node0]"}, {"--nproc-per-node", "8"}).exit_code, 0);
  EXPECT_THAT(refused(12, {}, {"--nproc-per-node", "8"}), HasSubstr("try: --world-size 8 or 16"));
  EXPECT_THAT(refused(184, {}, {}), HasSubstr("184 ranks share 183 training samples: some would never have one"));
  EXPECT_THAT(refused(4, {"eval.sample.prompt=x"}, {}), HasSubstr("no vocabulary"));
  EXPECT_THAT(refused(4, {"checkpoint.metric=top1"}, {}), HasSubstr("not measured"));
  EXPECT_THAT(refused(4, {}, {"--device-memory", "80"}), HasSubstr("--device-memory 80GiB"));
  EXPECT_THAT(refused(4, {}, {"--device-memory", "80KiB"}), HasSubstr("a number with MiB, GiB, TiB, MB, GB or TB"));
  const Result real = gputrain({"run", job, "--world-size", "4"});
  EXPECT_EQ(real.exit_code, 2);
  EXPECT_THAT(real.err, HasSubstr("--dry-run"));
}

TEST_F(DryRun, CountsWorkingCopyOfWeightsIn16Bits) {
  const std::string job = write_job("train: {max_steps: 2, global_batch_size: 2}\n");
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    const json memory = predicted(job, 1, {std::string("precision=") + precision})["memory"];
    const int64_t weights = memory["weights"], copy = memory["working_copy"];
    EXPECT_EQ(2 * copy, precision == std::string("fp32") ? 0 : weights);
    const int64_t rest = memory["buffers"].get<int64_t>() + memory["gradients"].get<int64_t>() +
                         memory["optimizer"].get<int64_t>() + memory["activations"].get<int64_t>();
    EXPECT_EQ(memory["total"], weights + copy + rest);
  }
}

TEST_F(DryRun, SharesOutEquallyAmongThousands) {
  const std::string job = write_job(
      "train: {max_epochs: 3, global_batch_size: 2000}\n"
      "parallel: {shard: optimizer}\n");
  const json page = predicted(job, 2000, {"data.train.samples=1000000"});
  const json& shards = page["shards"];
  EXPECT_GE(shards["most_owned_bytes"], 128);
  EXPECT_EQ(shards["fewest_owned_bytes"], shards["most_owned_bytes"]);
  EXPECT_EQ(2000 * shards["most_owned_bytes"].get<int64_t>(), page["memory"]["weights"]);
  EXPECT_EQ(page["checkpoint"]["files"], 2002);
  EXPECT_EQ(page["data"]["samples_per_rank_and_step"], (json{{"fewest", 1}, {"most", 1}}));
  EXPECT_TRUE(page["data"]["each_looked_up"]);
  EXPECT_EQ(page["wires"]["broadcast"]["calls"], 0);
  EXPECT_EQ(page["wires"]["all_gather"]["calls"], page["wires"]["buckets"]);
  EXPECT_EQ(page["wires"]["reduce_scatter"]["bytes"], page["memory"]["weights"]);
  EXPECT_FALSE(fs::exists("runs/job"));
}

// Four ranks: two replicas of two shards. Gradients are reduced in each of three passes, and across replicas once.
TEST_F(DryRun, CountsCollectivesOfAllMicroBatches) {
  const std::string job = write_job("train: {max_epochs: 1, global_batch_size: 12, micro_batch_size: 1}\n");
  const json page = predicted(job, 4, {"parallel.shard=gradients", "parallel.replicate=2"});
  const json &wires = page["wires"], &weights = page["memory"]["weights"];
  EXPECT_EQ(page["batch"]["accumulation"], 3);
  EXPECT_EQ(wires["reduce_scatter"]["bytes"], 3 * weights.get<int64_t>());
  EXPECT_EQ(wires["all_gather"]["bytes"], weights.get<int64_t>() / 2);
  EXPECT_EQ(wires["all_reduce"]["bytes"], weights.get<int64_t>() / 2 + 8);  // and a part of the norm
  EXPECT_EQ(wires["all_reduce"]["calls"], wires["buckets"].get<int64_t>() + 1);
}

TEST_F(DryRun, SuggestsMicroBatchThatFits) {
  const std::string job = write_job("train: {max_epochs: 1, global_batch_size: 128}\n");
  const json memory = predicted(job, 2, {})["memory"];
  const auto total = memory["total"].get<double>(), each = memory["bytes_per_sample"].get<double>();
  const std::string less = std::to_string((total - 4.5 * each) / 0x1p20) + "MiB";
  const Result refused = dry_run(job, 2, {}, {"--device-memory", less});
  EXPECT_EQ(refused.exit_code, 6);
  EXPECT_THAT(refused.out, HasSubstr("DOES NOT FIT"));
  EXPECT_THAT(refused.err, HasSubstr("--set train.micro_batch_size=32 "));
  EXPECT_THAT(refused.err, HasSubstr("--set train.activation_checkpointing=block"));
  const Result fits = dry_run(job, 2, {"train.micro_batch_size=32"}, {"--device-memory", less});
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_THAT(fits.out, HasSubstr("  fits"));
}

TEST_F(DryRun, RefusesMoreCheckpointsThanDiskHolds) {
  const std::string job = write_job(
      "train: {max_steps: 1000000000, global_batch_size: 8}\n"
      "checkpoint: {interval: 1, keep_last: 1000000000}\n");
  const Result refused = dry_run(job, 2, {}, {"--output-dir", folder_ / "not/yet/there"});
  EXPECT_EQ(refused.exit_code, 6);
  EXPECT_THAT(refused.out, HasSubstr("TOO MUCH"));
  EXPECT_THAT(refused.err, HasSubstr("not/yet/there: 1000000001 checkpoints at a time need "));
  EXPECT_EQ(dry_run(job, 2, {"checkpoint.keep_last=2"}).exit_code, 0);
}

}  // namespace
}  // namespace gputrain::testing_support

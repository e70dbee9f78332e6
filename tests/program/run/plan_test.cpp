// `gputrain plan`: what it predicts beside what a dry run predicts, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/estimate/predicted_activations.hpp"
#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

Arguments joined(Arguments first, const Arguments& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

Result run(const Arguments& arguments) { return gputrain(arguments, {{"OMP_NUM_THREADS", "1"}}); }

json printed(const Arguments& arguments) {
  const Result result = run(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

/// Small enough for steps of each candidate.
const std::string kSmall = "n_layer: 4, n_head: 4, n_kv_head: 2, n_embd: 128, block_size: 64, vocab_size: 512";
/// Activations are scaled from smaller decoders.
const std::string kLarger = "n_layer: 6, n_head: 8, n_kv_head: 4, n_embd: 256, block_size: 256, vocab_size: 512";

/// `precision`: bf16 is slow on a CPU that only emulates it.
std::string job_of(const std::string& model, const std::string& more, const std::string& precision) {
  return "schema: 1\nname: small\nprecision: " + precision + "\nmodel: {type: gpt, config: {" + model +
         ", position: rotary, norm: rmsnorm, activation: swiglu, tie_embeddings: false}}\n"
         "data: {train: {format: synthetic, vocab_size: 512, samples: 4096}}\n"
         "train: {max_steps: 2, global_batch_size: 32}\noptimizer: {type: adamw, lr: 1e-4}\n" +
         more;
}

class Plan : public ::testing::Test {
 protected:
  std::string write_job(const std::string& model = kSmall, const std::string& more = "", std::string precision = "") {
    if (precision.empty()) precision = model == kSmall ? "bf16" : "fp32";
    return folder_.write("job.yaml", job_of(model, more, precision));
  }
  Result plan(const Arguments& more) { return run(joined({"plan", write_job()}, more)); }
  TemporaryFolder folder_;
};

/// The plans of GPUs of 80 GiB, made once for jobs of the same text.
const json& plans_of(const std::string& job, int ranks, const Arguments& more = {}) {
  static std::map<std::pair<std::string, Arguments>, json> made;
  Arguments arguments{"--world-size", std::to_string(ranks), "--device-memory", "80GiB", "--json"};
  arguments = joined(arguments, more);
  const auto [entry, is_new] = made.try_emplace({read_file(job), arguments});
  if (is_new) entry->second = printed(joined({"plan", job}, arguments));
  return entry->second;
}

struct Agreement {
  std::string shard, checkpointing;
  int micro_batch;
  int tensor = 1, pipeline = 1, context = 1, virtual_stages = 1;

  bool shares_samples() const { return tensor * pipeline * context > 1; }
};

/// Names beside values of a candidate, as the job has them.
const std::vector<std::pair<std::string, std::string>> kSettings{
    {"parallel.shard", "shard"},
    {"parallel.replicate", "replicate"},
    {"parallel.tensor", "tensor"},
    {"parallel.pipeline", "pipeline"},
    {"parallel.virtual_stages", "virtual_stages"},
    {"parallel.context", "context"},
    {"train.micro_batch_size", "micro_batch"},
    {"train.gradient_accumulation_steps", "accumulation"},
    {"train.activation_checkpointing", "activation_checkpointing"}};

/// A dry run with a candidate's settings.
Result dry_run(const std::string& job, const json& candidate, int ranks, const Arguments& more = {}) {
  Arguments arguments = joined({"run", job, "--dry-run", "--json", "--world-size", std::to_string(ranks)}, more);
  for (const auto& [key, name] : kSettings) {
    const json& value = candidate[name];
    arguments.insert(arguments.end(),
                     {"--set", key + "=" + (value.is_string() ? value.get<std::string>() : value.dump())});
  }
  return run(arguments);
}

const json* find(const json& plans, const Agreement& wanted) {
  for (const json& one : plans["candidates"]) {
    if (one["shard"] == wanted.shard && one["activation_checkpointing"] == wanted.checkpointing &&
        one["micro_batch"] == wanted.micro_batch && one["tensor"] == wanted.tensor &&
        one["pipeline"] == wanted.pipeline && one["context"] == wanted.context &&
        one["virtual_stages"] == wanted.virtual_stages)
      return &one;
  }
  return nullptr;
}

void expect_same_memory(const json& planned, const json& dry, const std::string& name) {
  for (const char* key : {"weights", "frozen_weights", "working_copy", "buffers", "gradients", "optimizer"})
    EXPECT_EQ(planned[key], dry[key]) << name << ": " << key;
  const auto fixed = [](const json& memory) {
    return memory["total"].get<int64_t>() - memory["activations"].get<int64_t>();
  };
  EXPECT_EQ(fixed(planned), fixed(dry)) << name;
  const double activations = dry["activations"];
  EXPECT_NEAR(planned["activations"].get<double>(), activations, 0.15 * activations) << name;
}

/// Memory and bytes on the wire of these candidates, beside those of dry runs with their settings.
void expect_agreement(const std::string& job, const std::vector<Agreement>& candidates, int ranks = 4,
                      const Arguments& more = {}) {
  const json& plans = plans_of(job, ranks, more);
  for (const Agreement& wanted : candidates) {
    const std::string name =
        fmt::format("{} {} tensor {} pipeline {} x {} context {}", wanted.shard, wanted.checkpointing, wanted.tensor,
                    wanted.pipeline, wanted.virtual_stages, wanted.context);
    const json* const found = find(plans, wanted);
    ASSERT_NE(found, nullptr) << name;
    const Result dried = dry_run(job, *found, ranks);
    ASSERT_EQ(dried.exit_code, 0) << name << ": " << dried.err;
    const json dry = json::parse(dried.out);
    expect_same_memory((*found)["memory"], dry["memory"], name);
    const json later = dry.value("memory_of_later_stages", json::array());
    ASSERT_EQ(found->contains("memory_of_last_stage"), !later.empty()) << name;
    if (!later.empty()) expect_same_memory((*found)["memory_of_last_stage"], later.back(), name + ", last stage");
    if (wanted.shares_samples()) continue;
    const double sent = dry["wires"]["sent_bytes_per_rank"];
    EXPECT_NEAR((*found)["sent_bytes_per_rank"].get<double>(), sent, 64) << name;
  }
}

TEST_F(Plan, PredictsMemoryAndBytesOfDryRuns) {
  expect_agreement(write_job(), {{"none", "none", 8},
                                 {"optimizer", "selective", 4},
                                 {"gradients", "none", 4},
                                 {"parameters", "block", 8},
                                 {"parameters", "none", 2}});
}

TEST_F(Plan, ScalesActivationsOfLargerDecoders) {
  const std::string job = write_job(kLarger);
  expect_agreement(job, {{"none", "none", 2}, {"gradients", "none", 2}, {"parameters", "block", 4}});
  EXPECT_THAT(plans_of(job, 4)["activations"].get<std::string>(),
              StartsWith("scaled from decoders of 2 blocks with 1/2"));
}

TEST_F(Plan, PredictsMemoryBesideThatOfTheHost) {
  write_job(kLarger);
  const std::string job = folder_.write("offload.yaml",
                                        "include: job.yaml\ntrain: {activation_checkpointing: block, "
                                        "offload: {activations: true, optimizer: true}}\n");
  expect_agreement(job, {{"none", "block", 2}, {"parameters", "block", 4}});
  for (const json& one : plans_of(job, 4)["candidates"]) EXPECT_EQ(one["activation_checkpointing"], "block");
}

TEST_F(Plan, PredictsMemoryOfSharedLayersAndStages) {
  const std::string job = write_job(kLarger, "", "bf16");
  expect_agreement(job,
                   {{.shard = "none", .checkpointing = "none", .micro_batch = 2, .tensor = 2},
                    {.shard = "parameters", .checkpointing = "block", .micro_batch = 4, .tensor = 4},
                    {.shard = "none", .checkpointing = "none", .micro_batch = 2, .pipeline = 2},
                    {.shard = "parameters", .checkpointing = "selective", .micro_batch = 2, .pipeline = 2},
                    {.shard = "none", .checkpointing = "block", .micro_batch = 2, .tensor = 2, .pipeline = 2}},
                   8);
}

TEST_F(Plan, PredictsMemoryOfSharedTexts) {
  const std::string job = write_job(kLarger);
  expect_agreement(job,
                   {{.shard = "none", .checkpointing = "none", .micro_batch = 2, .context = 2},
                    {.shard = "none", .checkpointing = "block", .micro_batch = 4, .tensor = 2, .context = 2},
                    {.shard = "optimizer",
                     .checkpointing = "selective",
                     .micro_batch = 4,
                     .tensor = 2,
                     .pipeline = 2,
                     .context = 2}},
                   8, {"--set", "parallel.context=2"});
}

TEST_F(Plan, PredictsMemoryOfInterleavedStages) {
  const std::string job = write_job("n_layer: 8, n_head: 8, n_embd: 256, block_size: 256, vocab_size: 512");
  const Agreement interleaved{
      .shard = "none", .checkpointing = "none", .micro_batch = 2, .pipeline = 2, .virtual_stages = 2};
  Agreement selective = interleaved;
  selective.checkpointing = "selective";
  expect_agreement(job, {interleaved, selective}, 4);
}

/// The parameter that both ends of a pipeline use.
TEST_F(Plan, PredictsMemoryOfTiedEnds) {
  const std::string job = folder_.write("tied.yaml", "include: job.yaml\nmodel: {config: {tie_embeddings: true}}\n");
  write_job(kLarger);
  expect_agreement(job, {{.shard = "none", .checkpointing = "none", .micro_batch = 2, .pipeline = 2}});
}

/// A step of one sample at a time, as dry runs count them.
TEST_F(Plan, CountsWhatSharedLayersAndTextsSend) {
  const std::string job = write_job(kLarger);
  const auto sent = [&](const Agreement& wanted, const Arguments& more = {}) {
    const json* const found = find(plans_of(job, 2, more), wanted);
    ASSERT_NE(found, nullptr);
    const json wires = json::parse(dry_run(job, *found, 2).out)["wires"];
    const auto bytes = [&](const char* kind) { return wires[kind]["bytes"].get<double>(); };
    // Of two ranks: a half of what they reduce and scatter, all of what each gathers from, one direction of transfers.
    const double counted =
        bytes("all_reduce") + bytes("all_gather") + bytes("reduce_scatter") / 2 + bytes("broadcast") / 2;
    EXPECT_NEAR((*found)["sent_bytes_per_rank"].get<double>(), counted, 1e-3 * counted);
  };
  sent({.shard = "none", .checkpointing = "none", .micro_batch = 1, .tensor = 2});
  sent({.shard = "none", .checkpointing = "block", .micro_batch = 1, .tensor = 2});
  sent({.shard = "none", .checkpointing = "none", .micro_batch = 1, .pipeline = 2});
  sent({.shard = "none", .checkpointing = "block", .micro_batch = 1, .context = 2}, {"--set", "parallel.context=2"});
}

TEST_F(Plan, PrintsOnlyWhatARunAccepts) {
  const std::string job = write_job();
  for (const Arguments& more :
       {Arguments{"--set", "parallel.tensor=2"},
        Arguments{"--set", "parallel.pipeline=4", "--set", "parallel.context=2"},
        Arguments{"--set", "parallel.pipeline=2", "--set", "model.config.tie_embeddings=true"}}) {
    const json& plans = plans_of(job, 8, more);
    std::vector<json> some = plans["plans"];
    std::set<std::string> kinds;  // one of each way to share
    for (const json& one : plans["candidates"]) {
      const json kind{one["shard"], one["tensor"], one["pipeline"], one["virtual_stages"]};
      if (kinds.insert(kind.dump()).second) some.push_back(one);
    }
    for (const json& one : some) {
      const Result dried = dry_run(job, one, 8, more);
      EXPECT_EQ(dried.exit_code, 0) << one.dump() << dried.err;
    }
  }
}

TEST_F(Plan, KeepsHowTheJobSharesSamples) {
  const json& plans = plans_of(write_job(), 8, {"--set", "parallel.pipeline=2", "--set", "parallel.virtual_stages=2"});
  for (const json& one : plans["candidates"]) {
    ASSERT_EQ(one["pipeline"], 2);
    ASSERT_EQ(one["virtual_stages"], 2);
  }
  EXPECT_THAT(plans["yaml"].get<std::string>(), HasSubstr("pipeline: 2, virtual_stages: 2"));
}

/// More ranks than samples in a step.
TEST_F(Plan, SharesSamplesWhereThereAreTooFew) {
  const Result result = plan({"--world-size", "64", "--device-memory", "80GiB"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("split"), HasSubstr("pipeline: 2")));
}

TEST_F(Plan, PrintsFiveCandidatesAndWhatToPaste) {
  const Result result = plan({"--world-size", "16", "--device-memory", "80GiB", "--gpus", "a100"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("16 ranks on 2 hosts of a100, 80.0 GiB"), HasSubstr("\n5  "),
                                HasSubstr("assumed"), HasSubstr("published, DGX A100")));
  const size_t paste = result.out.find("parallel: {shard: ");
  ASSERT_NE(paste, std::string::npos) << result.out;
  const std::string lines = result.out.substr(paste);
  const std::string job = folder_.write("pasted.yaml", "include: job.yaml\n" + lines);
  EXPECT_EQ(run({"run", job, "--dry-run", "--world-size", "16"}).exit_code, 0) << lines;
}

TEST_F(Plan, TakesMeasuredRatesFromFilesOfBench) {
  const auto comm = [&](const std::string& name, const json& hosts, double busbw, double seconds) {
    return folder_.write(name,
                         json{{"ranks", hosts.size()},
                              {"hosts", hosts},
                              {"rows",
                               {{{"collective", "all_reduce"}, {"bytes", 1 << 20}, {"seconds", 1.0}, {"busbw", busbw}},
                                {{"collective", "all_gather"}, {"bytes", 8}, {"seconds", seconds}, {"busbw", 1.0}}}}}
                             .dump());
  };
  const json row{{"precision", "bf16"},
                 {"activation_checkpointing", "none"},
                 {"micro_batch", 8},
                 {"accumulation", 1},
                 {"failure", nullptr},
                 {"unit", "tokens"},
                 {"each", {{"seconds", {1.0}}, {"rates", {1.0}}}},
                 {"flops_per_second", 5e14},
                 {"peak_flops_per_second", 1e15},
                 {"peak_memory_bytes", 1},
                 {"first_loss", 1},
                 {"last_loss", 1}};
  const std::string train =
      folder_.write("train.json", json{{"machine", {{"device", "NVIDIA H200"}}}, {"rows", {row}}}.dump());
  const json rates =
      printed({"plan", write_job(), "--world-size", "4", "--device-memory", "80GiB", "--json", "--bench-train", train,
               "--bench-comm", comm("two.json", {"a", "a", "b", "b"}, 6e10, 3e-5), "--bench-comm",
               comm("one.json", {"a", "a"}, 2e11, 5e-6)})["rates"];
  EXPECT_DOUBLE_EQ(rates["compute"]["value"].get<double>() * rates["compute"]["share"].get<double>(), 5e14);
  EXPECT_DOUBLE_EQ(rates["inside_host"]["value"], 2e11);
  EXPECT_DOUBLE_EQ(rates["hop_inside_host"]["value"], 5e-6);
  EXPECT_DOUBLE_EQ(rates["between_hosts"]["value"], 3e10);      // of each of two ranks of a host
  EXPECT_DOUBLE_EQ(rates["hop_between_hosts"]["value"], 2e-5);  // without the two hops inside hosts
  EXPECT_THAT(rates["compute"]["origin"].get<std::string>(), StartsWith("measured"));
  EXPECT_EQ(rates["memory"]["value"], 4.8e12);  // of the H200 that was measured
  EXPECT_THAT(rates["memory"]["origin"].get<std::string>(), StartsWith("published"));
}

// A step of one sample would take this machine minutes, and the model does not fit into its memory.
TEST_F(Plan, IsWhatADryRunOfALargeModelSays) {
  const std::string job = write_job("n_layer: 40, n_head: 64, n_embd: 8192, block_size: 64, vocab_size: 512");
  const Arguments batch{"--set", "train.global_batch_size=64"};
  const json& plans = plans_of(job, 64, batch);
  for (const Agreement& wanted : {Agreement{"parameters", "block", 1}, Agreement{"gradients", "none", 1, 8, 2}}) {
    const json* const found = find(plans, wanted);
    ASSERT_NE(found, nullptr) << wanted.shard;
    const Result dried = dry_run(job, *found, 64, batch);
    ASSERT_THAT(dried.exit_code, ::testing::AnyOf(0, 6)) << dried.err;  // 6: this disk is too small
    const json dry = json::parse(dried.out);
    const double total = dry["memory"]["total"];
    EXPECT_NEAR((*found)["memory"]["total"].get<double>(), total, 1e-5 * total) << wanted.shard;
    EXPECT_TRUE(dry["memory"].contains("predicted_samples"));
    EXPECT_FALSE(dry["memory"].contains("measured_samples"));
    EXPECT_FALSE(dry["wires"].contains("all_gather"));  // nothing was sent that could be counted
    EXPECT_TRUE(dry["first_loss"].is_null());
  }
  const Result other =
      run(joined({"run", job, "--dry-run", "--world-size", "64", "--set", "model.freeze=[model.layers.0.*]"}, batch));
  EXPECT_EQ(other.exit_code, 6);
  EXPECT_THAT(other.err, AllOf(HasSubstr("operations"), HasSubstr("only for models of type gpt")));
}

TEST_F(Plan, SaysWhatWouldFitIfNothingDoes) {
  const std::string job = write_job("n_layer: 16, n_head: 16, n_embd: 2048, block_size: 64, vocab_size: 512");
  const Result result = run({"plan", job, "--world-size", "2", "--device-memory", "4GiB"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, AllOf(HasSubstr("nothing fits into 4.00 GiB: the nearest, shard parameters with a"),
                                HasSubstr(", and 5 % for other things"), HasSubstr("--world-size 4"),
                                HasSubstr("--device-memory 8GiB")));
  EXPECT_EQ(run({"plan", job, "--world-size", "4", "--device-memory", "4GiB"}).exit_code, 0);
}

TEST_F(Plan, RefusesWhatItCannotPredict) {
  const auto refused = [&](const Arguments& arguments, const std::string& why, const std::string& hint) {
    const Result result = plan(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr(why), HasSubstr(hint)));
  };
  const Arguments whole{"--world-size", "4", "--device-memory", "80GiB"};
  refused(joined(whole, {"--gpus", "h1000"}), "the rates of --gpus h1000 are not known",
          "h200, h100, h100-pcie, a100-40");
  refused({"--world-size", "4", "--set", "device=cpu"}, "how much memory each GPU has is not known",
          "--device-memory 80GiB");
  refused({"--world-size", "4", "--device-memory", "80"}, "--device-memory 80 is not a valid memory size", "80GiB");
  refused({"--world-size", "5", "--device-memory", "80GiB"}, "32 samples does not divide among 5 ranks",
          "train.global_batch_size=30 or 35");
  refused({"--world-size", "1024", "--device-memory", "80GiB"}, "a global batch of 32 cannot be shared by 1024 ranks",
          "at least 1024");
  refused(joined(whole, {"--set", "parallel.tensor=3"}), "4 ranks cannot be groups of 3", "1, 2 or 4");
  refused(joined(whole, {"--set", "parallel.context=2", "--set", "model.freeze=['*norm*']"}),
          "is predicted only for a model of type gpt without model.freeze", "--set parallel.context=1");
  refused(joined(whole, {"--bench-comm", write_job()}), "is not what `gputrain bench comm --json` prints", "job.yaml");
  refused(joined(whole, {"--bench-train", folder_ / "none"}), "cannot be read", "bench train --json");
  refused(joined(whole, {"--set", "precision=fp64"}), "h100 has no known rate in fp64", "precision=bf16");
}

// Beside what blocks keep: outputs that await a gradient from the next stage, and two gradients on their way.
TEST_F(Plan, CountsWhatIsBetweenStages) {
  const app::Job job = app::load_job({.file = write_job(kSmall, "", "fp32"), .set = {}, .output_dir = {}});
  const app::JobDatasets datasets = app::open_datasets(job);
  const app::RankContext context = app::simulate_rank(job, {}, std::make_shared<comm::CollectiveTraffic>());
  app::PredictedActivations predicted(job, datasets, context);
  const app::TextFacts texts{.tokens = 64, .vocabulary = datasets.facts.vocabulary};
  app::BlockActivations blocks = app::scaled_activations(job, "none", texts, {});
  blocks.matrices = app::scaled_matrices(job, texts);
  const int64_t output = 64 * 128 * int64_t{sizeof(float)};  // of one sample
  app::RankLayout layout{.units = 4,
                         .parts = {{.begin = 0, .end = 2, .blocks = 1}, {.begin = 2, .end = 4, .blocks = 1}}};
  EXPECT_EQ(predicted.bytes({.pipeline = 2, .accumulation = 4}, layout),
            blocks.bytes(1, /*held_blocks=*/2, /*has_head=*/false, {}) + (2 + 2) * output);
  layout.stage = 1;
  EXPECT_EQ(predicted.bytes({.pipeline = 2, .accumulation = 4}, layout),
            blocks.bytes(1, /*held_blocks=*/1, /*has_head=*/true, {}) + 2 * output);
}

}  // namespace
}  // namespace gputrain::testing_support

// `validate`, `run` and `plan` say the same of settings that exclude each other, before anything is opened.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../../src/cli/commands.hpp"
#include "gputrain/estimate/plan_search.hpp"
#include "gputrain/setup/compatibility.hpp"
#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Settings = std::vector<std::string>;

/// The data is not there: who opens it fails otherwise.
const char* const kJob =
    "schema: 1\nname: small\n"
    "model: {type: gpt, config: {n_layer: 4, n_head: 4, n_embd: 32, block_size: 16, vocab_size: 67}}\n"
    "data: {train: {format: tokens, path: /there/is/none.bin, vocab_size: 67}}\n"
    "train: {max_steps: 2, global_batch_size: 32}\noptimizer: {type: adamw, lr: 1e-4}\nlog: {tensorboard: true}\n";

const Settings kSwitches{"parallel.tensor=2",           "parallel.pipeline=2",     "parallel.context=2",
                         "parallel.shard=gradients",    "parallel.replicate=2",    "parallel.compress=bf16",
                         "optimizer.type=muon",         "optimizer.master=bf16",   "train.ema.decay=0.9",
                         "train.micro_batch_size=auto", "model.freeze=['*norm*']", "eval.sample.prompt=a",
                         "model.config.dropout=0.1"};

/// What the error says; empty: there is none.
std::string refusal(const std::function<void()>& verb) {
  try {
    verb();
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
    return error.what();
  }
}

/// Whether a plan tries other values, whatever the job says.
bool is_searched(const std::string& setting) {
  return setting.starts_with("parallel.shard") || setting.starts_with("parallel.replicate");
}

TEST(CompatibleVerbs, RefuseTheSamePairs) {
  const TemporaryFolder folder;
  const std::string file = folder.write("job.yaml", kJob);
  int refused = 0;
  for (size_t i = 0; i < kSwitches.size(); ++i) {
    for (size_t j = i + 1; j < kSwitches.size(); ++j) {
      const app::JobRequest job{.file = file, .set = {kSwitches[i], kSwitches[j]}, .output_dir = folder / "run"};
      const std::string said = refusal([&] { app::validate_command(job, /*json=*/false); });
      if (said.empty()) continue;
      ++refused;
      EXPECT_EQ(refusal([&] { app::run_command({.job = job, .dry_run = true, .dry_run_request = {.world_size = 8}}); }),
                said);
      if (is_searched(kSwitches[i]) || is_searched(kSwitches[j])) continue;
      EXPECT_EQ(
          refusal([&] { app::search_plans(app::load_job(job), {app::PlanRequest{.world_size = 8, .rates = {}}}); }),
          said);
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

// A plan has only candidates that a run takes.
TEST(CompatibleVerbs, PlanWhatARunTakes) {
  const TemporaryFolder folder;
  const std::string file = folder.write("job.yaml", kJob);
  const app::Constant rate{.value = 1e12}, latency{.value = 1e-6};
  const app::ClusterRates rates{.compute = rate,
                                .memory = rate,
                                .inside = rate,
                                .between = rate,
                                .inside_latency = latency,
                                .between_latency = latency,
                                .start = latency};
  for (const char* setting : {"optimizer.type=muon", "model.config.tie_embeddings=true", "eval.sample.prompt=a"}) {
    const app::Job job =
        app::load_job({.file = file, .set = {setting, "data.train={format: synthetic, samples: 64, vocab_size: 67}"}});
    const app::Plans plans =
        app::search_plans(job, {app::PlanRequest{.world_size = 8, .device_bytes = int64_t{1} << 36, .rates = rates}})
            .front();
    ASSERT_FALSE(plans.all.empty()) << setting;
    for (const app::PlanRow& row : plans.all)
      EXPECT_TRUE(app::broken_rules(app::features_of(app::job_of(job, row.candidate).spec())).empty())
          << setting << ": " << app::yaml_of(row.candidate);
  }
}

// What a job asks of more ranks than there are has no effect: runs that began so go on.
TEST(CompatibleVerbs, RunWhatRanksDoNotShare) {
  const TemporaryFolder folder;
  const std::string file = folder.write("job.yaml", kJob), run = folder / "run";
  const std::vector<std::string> settings{"--set", "data.train={format: synthetic, samples: 64, vocab_size: 67}",
                                          "--set", "parallel.shard=parameters",
                                          "--set", "optimizer.type=muon"};
  const auto with_settings = [&](std::vector<std::string> words) {
    words.insert(words.end(), settings.begin(), settings.end());
    return gputrain(words);
  };
  EXPECT_EQ(with_settings({"validate", file}).exit_code, 2);
  EXPECT_EQ(with_settings({"run", file, "--output-dir", run}).exit_code, 0);
  EXPECT_EQ(gputrain({"run", run + "/job.resolved.yaml", "--output-dir", run, "--set", "train.max_steps=3", "--accept"})
                .exit_code,
            0);
}

TEST(CompatibleVerbs, RefuseATrialBeforeTheFirstOne) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("job.yaml", std::string(kJob) +
                                   "sweep: {method: grid, metric: val/loss, parameters: [{key: train.swa.start, "
                                   "values: [50%]}]}\n");
  const Result result = gputrain(
      {"sweep", file, "--output-dir", folder / "sweep", "--set", "train.ema.decay=0.9", "--set", "data.val.split=25%"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("one of the two"));
  EXPECT_FALSE(std::filesystem::exists(folder / "sweep/trial-001"));
}

TEST(CompatibleVerbs, TellAllReasonsWithTheirLines) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("job.yaml", std::string(kJob) + "eval: {sample: {prompt: a}}\nparallel: {pipeline: 2, tensor: 2}\n");
  const Result result = gputrain({"validate", file, "--set", "optimizer.type=muon"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("2 mistakes"), HasSubstr("job.yaml:8"), HasSubstr("token by token"),
                                HasSubstr("muon updates whole matrices, but ranks share them")));
  EXPECT_THAT(gputrain({"validate", file, "--json"}).out,
              HasSubstr("\"what\": \"eval.sample: does not go with parallel.pipeline: a text is written"));
}

}  // namespace
}  // namespace gputrain::testing_support

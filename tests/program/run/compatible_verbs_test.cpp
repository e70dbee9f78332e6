// `validate`, `run` and `plan` say the same of settings that exclude each other, before anything is opened.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/estimate/plan_search.hpp"
#include "gputrain/job/commands.hpp"
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
                         "parallel.shard=gradients",    "parallel.replicate=2",    "parallel.compress=powersgd",
                         "optimizer.type=muon",         "optimizer.master=bf16",   "train.ema.decay=0.9",
                         "train.micro_batch_size=auto", "model.freeze=['*norm*']", "log.histograms=1",
                         "eval.sample.prompt=a",        "model.config.dropout=0.1"};

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
      EXPECT_EQ(refusal([&] { app::run_command({.job = job}); }), said);
      EXPECT_EQ(refusal([&] { app::search_plans(app::load_job(job), {.world_size = 8, .rates = {}}); }), said);
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
  for (const char* setting : {"optimizer.type=muon", "model.config.tie_embeddings=true", "log.histograms=1"}) {
    const app::Job job =
        app::load_job({.file = file, .set = {setting, "data.train={format: synthetic, samples: 64, vocab_size: 67}"}});
    const app::Plans plans =
        app::search_plans(job, {.world_size = 8, .device_bytes = int64_t{1} << 36, .rates = rates});
    ASSERT_FALSE(plans.all.empty()) << setting;
    for (const app::PlanRow& row : plans.all)
      EXPECT_TRUE(app::broken_rules(app::features_of(app::job_of(job, row.candidate).spec())).empty())
          << setting << ": " << app::yaml_of(row.candidate);
  }
}

TEST(CompatibleVerbs, TellAllReasonsWithTheirLines) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("job.yaml", std::string(kJob) + "eval: {sample: {prompt: a}}\nparallel: {pipeline: 2, tensor: 2}\n");
  const Result result = gputrain({"validate", file, "--set", "optimizer.type=muon"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("2 mistakes"), HasSubstr("job.yaml:8"), HasSubstr("token by token"),
                                HasSubstr("muon updates whole matrices, but ranks share them")));
  EXPECT_THAT(gputrain({"validate", file, "--json"}).out, HasSubstr("\"what\": \"eval.sample: a text is written"));
}

}  // namespace
}  // namespace gputrain::testing_support

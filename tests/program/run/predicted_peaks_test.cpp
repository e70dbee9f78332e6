// Memory of fine-tuning as `gputrain plan` predicts it for large decoders, beside that of real steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "gputrain/device/allocation_meter.hpp"
#include "gputrain/estimate/predicted_activations.hpp"
#include "gputrain/setup/training_loop.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

struct Kind {
  std::string name, model, rest;

  friend void PrintTo(const Kind& it, std::ostream* to) { *to << it.name; }
};

/// Too large to be measured by the prediction: it scales smaller decoders.
std::string decoder(const std::string& more = "vocab_size: 4096") {
  return "config: {n_layer: 4, n_head: 8, n_kv_head: 4, n_embd: 512, block_size: 128, position: rotary, norm: rmsnorm, "
         "activation: swiglu, " +
         more + "}";
}
const std::string kLora = ", adapter: {type: lora, rank: 16}";

const Kind kKinds[] = {
    {"Fp32", decoder("vocab_size: 4096, tie_embeddings: false"), "precision: fp32\n"},
    {"Bf16InBlocks", decoder(), "precision: bf16\n"},
    {"OfManyTokensInBlocks", decoder("vocab_size: 32768"), "precision: bf16\n"},
    {"NarrowInBlocks", decoder(), "precision: bf16\n"},
    {"Lora", decoder() + kLora, "precision: bf16\n"},
    {"LoraInBlocks", decoder("vocab_size: 32768") + kLora, "precision: bf16\n"},
    {"LoraOfFewLayers", decoder() + ", adapter: {type: lora, rank: 3, dropout: 0.1, target_modules: [q_proj, v_proj]}",
     "precision: fp32\n"},
    {"Nf4", decoder() + kLora + ", quantize: {type: nf4}", "precision: bf16\n"},
    {"Nf4InBlocks", decoder() + kLora + ", quantize: {type: nf4}", "precision: bf16\n"},
    {"Int8", decoder() + kLora + ", quantize: {type: int8}", "precision: bf16\n"},
};

class PredictedPeak : public ::testing::TestWithParam<Kind> {};

TEST_P(PredictedPeak, IsThatOfRealSteps) {
  const Kind& kind = GetParam();
  const TemporaryFolder folder;
  const bool is_narrow = kind.name.starts_with("Narrow"), in_blocks = kind.name.ends_with("InBlocks");
  const std::string file = folder.write(
      "job.yaml", "schema: 1\ndevice: cpu\n" + kind.rest + "model: {type: gpt, " + kind.model +
                      "}\ndata: {num_workers: 0, train: {format: synthetic, vocab_size: 4096, samples: 64}}\n"
                      "train: {max_steps: 2, global_batch_size: 4, max_grad_norm: 1.0, activation_checkpointing: " +
                      (in_blocks ? "block" : "none") +
                      "}\noptimizer: " + (is_narrow ? "{type: adamw8bit, master: bf16}" : "{type: adamw}") + "\n");
  const app::Job job = app::load_job({.file = file, .set = {}, .output_dir = {}});
  const auto alone = [&] { return app::simulate_rank(job, {}, std::make_shared<comm::CollectiveTraffic>()); };
  app::TrainingSetup setup(
      job, alone(), [&] { return app::open_datasets(job); }, /*kept_global_batch=*/0, app::Weights::made_up);
  const auto fixed = app::fixed_memory(setup.built, setup.optimizer_stack);
  int64_t real_activations = 0;
  {
    train::Progress progress;
    const device::AllocationMeter meter;
    app::TrainingLoop(job.spec(), setup, {}, [] {}).run(progress, {}, 2);
    real_activations = meter.peak_bytes();
  }
  const auto real = static_cast<double>(fixed.total() + real_activations);
  app::RankContext context = alone();
  app::PredictedActivations predicted(job, setup.datasets, context);
  const app::RankLayout layout = app::rank_layout(job, setup.datasets, setup.plan, context);
  EXPECT_EQ(layout.fixed.total(), fixed.total());
  const app::PlanCandidate candidate = app::candidate_of(job.spec(), setup.plan.batch);
  const int64_t activations = predicted.bytes(candidate, layout);
  EXPECT_THAT(predicted.text(), HasSubstr("scaled from decoders"));
  EXPECT_NEAR(static_cast<double>(fixed.total() + activations), real, 0.05 * real)
      << "activations predicted " << activations << ", real " << real_activations;
}

INSTANTIATE_TEST_SUITE_P(OfKinds, PredictedPeak, ::testing::ValuesIn(kKinds),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace gputrain::testing_support

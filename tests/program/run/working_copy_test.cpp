// Layers read weights from a 16-bit copy: the run equals, bit for bit, one that casts each weight in each pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "support/checkpoints.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kGpt =
    "model: {type: gpt, config: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 16, pad_vocab_to: 64, dropout: 0.1}}\n";
const std::string kLlama =
    "model: {type: gpt, config: {n_layer: 1, n_head: 4, n_kv_head: 2, n_embd: 32, block_size: 16, position: rotary, "
    "norm: rmsnorm, activation: swiglu, bias: false, tie_embeddings: false}}\n";
const std::string kConvnet =
    "model: {type: convnet, config: {channels: [4, 6], batch_norm: true}}\n"
    "data: {train: {format: synthetic, samples: 90}, image: {size: 8}}\n";
const std::string kAdamW = "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.1}\n";
const std::string kSgd = "optimizer: {type: sgd, lr: 0.05, momentum: 0.9, nesterov: true}\n";

struct Case {
  std::string name, precision, job;
  int ranks = 1;
  std::vector<std::string> more = {};

  friend void PrintTo(const Case& it, std::ostream* to) { *to << it.name; }
};

std::vector<Case> cases() {
  const auto set = [](const std::string& what) { return std::vector<std::string>{"--set", what}; };
  return {{"GptInBf16", "bf16", kGpt + kAdamW},
          {"GptInFp16", "fp16", kGpt + kSgd},
          {"LlamaInBf16", "bf16", kLlama + kAdamW, 1, set("train.activation_checkpointing=block")},
          {"ConvnetInBf16", "bf16", kConvnet + kSgd},
          {"ConvnetInFp16", "fp16", kConvnet + kAdamW, 1, set("train.channels_last=false")},
          {"TwoRanksThatShareTheOptimizer", "bf16", kGpt + kAdamW, 2, set("parallel.shard=optimizer")},
          {"TwoRanksThatShareTheGradients", "fp16", kLlama + kAdamW, 2, set("parallel.shard=gradients")}};
}

class WorkingCopyRun : public ::testing::TestWithParam<Case> {
 protected:
  void TearDown() override { ::unsetenv("GPUTRAIN_KERNELS"); }

  std::string write_job() const {
    const auto& [name, precision, job, ranks, more] = GetParam();
    const bool is_text = job.find("data:") == std::string::npos;
    return folder_.write("job.yaml",
                         "schema: 1\ndevice: cpu\nprecision: " + precision + "\n" + job +
                             (is_text ? "data: {train: {path: " + write_text(folder_) +
                                            ", format: text}, val: {split: 10%}}\neval: {interval: 10}\n"
                                      : "") +
                             "train: {max_steps: 20, global_batch_size: 8, micro_batch_size: 2, max_grad_norm: 1.0}\n"
                             "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  }

  /// Runs normally, or with casts.
  Result run(const std::string& job, const std::string& name, bool casts) const {
    casts ? ::setenv("GPUTRAIN_KERNELS", "aten", 1) : ::unsetenv("GPUTRAIN_KERNELS");
    return ranks(GetParam().ranks, job, folder_ / name, GetParam().more);
  }

  void expect_equal_runs(const std::string& a, const std::string& b) const {
    EXPECT_THAT(differing_tensors(folder_ / a, folder_ / b), IsEmpty());
    EXPECT_EQ(read_file(folder_ / (a + "/model.safetensors")), read_file(folder_ / (b + "/model.safetensors")));
    EXPECT_EQ(timeless_metrics(folder_ / (a + "/metrics.jsonl")), timeless_metrics(folder_ / (b + "/metrics.jsonl")));
  }

  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Of, WorkingCopyRun, ::testing::ValuesIn(cases()),
                         [](const auto& entry) { return entry.param.name; });

TEST_P(WorkingCopyRun, MatchesCastsBitForBitAndResumes) {
  const std::string job = write_job();
  const Result copied = run(job, "copied", /*casts=*/false), cast = run(job, "cast", /*casts=*/true);
  ASSERT_EQ(copied.exit_code, 0) << copied.err;
  ASSERT_EQ(cast.exit_code, 0) << cast.err;
  EXPECT_THAT(copied.out, HasSubstr(" and 16-bit copy "));
  EXPECT_THAT(cast.out, Not(HasSubstr(" and 16-bit copy ")));
  expect_equal_runs("cast", "copied");

  copy_without_the_end(folder_ / "copied", folder_ / "resumed");
  const Result resumed = run(job, "resumed", /*casts=*/false);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("resume  step 10"));
  expect_equal_runs("cast", "resumed");
}

}  // namespace
}  // namespace gputrain::testing_support

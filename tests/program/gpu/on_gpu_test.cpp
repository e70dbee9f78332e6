// The program on a GPU, as a user starts it. GPUTRAIN_TEST_DEVICE=cpu runs these tests on a machine without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "gputrain/device/runtime.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

std::string test_device() {
  const char* given = std::getenv("GPUTRAIN_TEST_DEVICE");
  return given == nullptr ? "cuda" : given;
}

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device() == "cuda" && device::gpu_count() == 0) GTEST_SKIP() << "there is no GPU here";
    ::setenv("GPUTRAIN_KERNEL_CHOICES", (folder_ / "choices.jsonl").c_str(), 1);  // each test chooses its own kernels
  }

  std::vector<std::string> run(const std::string& job, const std::string& name,
                               const std::vector<std::string>& settings,
                               const std::string& device = test_device()) const {
    std::vector<std::string> arguments{gputrain_path(),   "run", job, "--output-dir", folder_ / name, "--set",
                                       "device=" + device};
    for (const auto& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return arguments;
  }

  Result finished(const std::vector<std::string>& arguments) const {
    Result result = Program(arguments).wait();
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result;
  }

  TemporaryFolder folder_;
};

struct Model {
  std::string name, job;
  friend void PrintTo(const Model& it, std::ostream* to) { *to << it.name; }
};

const std::string kImages =
    "data: {train: {format: synthetic, samples: 64}, image: {size: 64}}\noptimizer: {type: sgd, lr: 0.01, momentum: "
    "0.9}\n";

std::string job_of(const TemporaryFolder& folder, const Model& model) {
  const bool is_text = model.job.find("data:") == std::string::npos;
  return folder.write("job.yaml",
                      "schema: 1\n" + model.job +
                          (is_text ? "data: {train: {path: " + write_text(folder) +
                                         ", format: text}, val: {split: 10%}}\n"
                                         "optimizer: {type: adamw, lr: 1e-3, weight_decay: 0.1}\n"
                                   : "") +
                          "train: {max_steps: 8, global_batch_size: 16, micro_batch_size: 8, max_grad_norm: 1.0}\n"
                          "log: {interval: 1}\n");
}

const Model kGpt{"Gpt",
                 "model: {type: gpt, config: {n_layer: 2, n_head: 2, n_embd: 64, block_size: 32, dropout: 0.0}}\n"};

class TrainingOnGpu : public OnGpu, public ::testing::WithParamInterface<Model> {
 protected:
  /// Expects the losses of two runs to differ at most by this relative share.
  void expect_close(const std::string& actual, const std::string& expected, double share) const {
    const auto a = values(folder_ / (actual + "/metrics.jsonl"), "train/loss"),
               b = values(folder_ / (expected + "/metrics.jsonl"), "train/loss");
    ASSERT_EQ(a.size(), 8U);
    ASSERT_EQ(b.size(), 8U);
    for (size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], share * b[i]) << actual << ", step " << i + 1;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Models, TrainingOnGpu,
    ::testing::Values(
        kGpt,
        Model{"Llama",
              "model: {type: gpt, config: {n_layer: 2, n_head: 4, n_kv_head: 2, n_embd: 64, block_size: 32, "
              "position: rotary, norm: rmsnorm, activation: swiglu, bias: false, tie_embeddings: false}}\n"},
        Model{"Resnet18", "model: {type: resnet18, config: {num_classes: 10}}\n" + kImages},
        Model{"Convnet", "model: {type: convnet, config: {channels: [8, 16], batch_norm: true}}\n" + kImages}),
    [](const auto& entry) { return entry.param.name; });

TEST_P(TrainingOnGpu, MatchesCpu) {
  const std::string job = job_of(folder_, GetParam());
  finished(run(job, "gpu", {"precision=fp32"}));
  finished(run(job, "cpu", {"precision=fp32"}, "cpu"));
  // With batch norm over few samples, rounding grows from step to step.
  expect_close("gpu", "cpu", GetParam().name == "Resnet18" ? 2e-2 : 2e-3);
}

TEST_P(TrainingOnGpu, MatchesFp32In16Bits) {
  const std::string job = job_of(folder_, GetParam());
  finished(run(job, "wide", {"precision=fp32"}));
  for (const std::string precision : {"bf16", "fp16"}) {
    finished(run(job, precision, {"precision=" + precision}));
    expect_close(precision, "wide", 0.05);
  }
}

TEST_P(TrainingOnGpu, ResumesBitForBit) {
  const std::string job = job_of(folder_, GetParam());
  const std::vector<std::string> settings{"precision=bf16", "deterministic=true", "train.max_steps=300",
                                          "checkpoint.interval=100"};
  finished(run(job, "whole", settings));
  {
    Program attempt(run(job, "parts", settings));
    ASSERT_TRUE(attempt.prints("step    10/"));
    attempt.signal(SIGTERM);
    const Result result = attempt.wait();
    ASSERT_EQ(result.exit_code, 143) << result.out << result.err;
  }
  EXPECT_THAT(finished(run(job, "parts", settings)).out, HasSubstr("resume  step "));
  EXPECT_EQ(read_file(folder_ / "whole/model.safetensors"), read_file(folder_ / "parts/model.safetensors"));
  EXPECT_EQ(timeless_metrics(folder_ / "whole/metrics.jsonl"), timeless_metrics(folder_ / "parts/metrics.jsonl"));
}

TEST_F(OnGpu, OffloadsWithoutChangingABit) {
  const std::string job = job_of(folder_, kGpt);
  std::vector<std::string> settings{"precision=bf16", "deterministic=true", "model.config.n_layer=4",
                                    "train.activation_checkpointing=block", "train.cuda_graphs=off"};
  finished(run(job, "plain", settings));
  settings.insert(settings.end(), {"train.offload.activations=true", "train.offload.optimizer=true"});
  finished(run(job, "offloaded", settings));
  EXPECT_EQ(read_file(folder_ / "plain/model.safetensors"), read_file(folder_ / "offloaded/model.safetensors"));
  EXPECT_EQ(timeless_metrics(folder_ / "plain/metrics.jsonl"), timeless_metrics(folder_ / "offloaded/metrics.jsonl"));
}

TEST_F(OnGpu, FindsMicroBatch) {
  const std::string job = job_of(folder_, kGpt);
  EXPECT_THAT(
      finished(run(job, "run", {"train.micro_batch_size=auto", "train.global_batch_size=64", "precision=bf16"})).out,
      HasSubstr("auto: fastest that fits"));
}

TEST_F(OnGpu, ReportsOutOfMemoryOnOnePage) {
  if (test_device() == "cpu") GTEST_SKIP() << "the host's memory is not filled for this";
  const std::string job = folder_.write(
      "job.yaml",
      "schema: 1\nprecision: bf16\nmodel: {type: gpt, config: {n_layer: 1, n_head: 8, n_embd: 512, block_size: 1024, "
      "vocab_size: 50304}}\n"
      "data: {train: {format: synthetic, samples: 8192, vocab_size: 50304}}\n"
      "train: {max_steps: 1, global_batch_size: 8192, micro_batch_size: 8192}\noptimizer: {type: sgd, lr: 0.1}\n");
  const Result result = Program(run(job, "run", {})).wait();
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("out of memory"));
  EXPECT_THAT(result.err, HasSubstr("train.micro_batch_size"));
}

TEST_F(OnGpu, RefusesOneGpuForTwoRanks) {
  if (test_device() == "cpu") GTEST_SKIP() << "ranks may share a CPU";
  ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  RankPrograms programs = start_ranks(2, job_of(folder_, kGpt), folder_ / "run", {"--set", "device=cuda"});
  const Result result = wait_for(programs);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("same GPU"));
}

}  // namespace
}  // namespace gputrain::testing_support

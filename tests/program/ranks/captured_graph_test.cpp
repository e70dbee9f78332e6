// Recorded and replayed steps give the same results as steps that are queued each time. On a CPU the recording is a
// tape of ATen operators, in precisions for which we have no kernels; on a GPU it is a CUDA graph.
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/device/runtime.hpp"
#include "gputrain/setup/training_loop.hpp"
#include "gputrain/train/step.hpp"
#include "support/program.hpp"
#include "support/tape.hpp"

namespace gputrain::app {
namespace {

using testing_support::Tape;

constexpr int kSteps = 9;

/// Keeps the result of every step.
class Curve final : public train::Hook {
 public:
  train::Stop after_step(train::Progress&, const train::StepResult& result, bool) override {
    results.push_back(result);
    return train::Stop::none;
  }
  std::vector<train::StepResult> results;
};

/// Everything that a run produces.
struct Left {
  std::vector<train::StepResult> steps;
  at::Tensor values, random;
  std::vector<at::Tensor> buffers, optimizer;
};

Left train(const Job& job, const TrainingLoop::MakeCapturedGraphs& make) {
  TrainingSetup setup(job);
  Curve curve;
  train::Progress progress;
  TrainingLoop(job.spec(), setup, [] { return train::Stop::none; }, [] {}, make).run(progress, {&curve});
  Left left{.steps = curve.results,
            .values = setup.built.arena->values().clone(),
            .random = device::generator_state(setup.context.device),
            .buffers = {},
            .optimizer = {}};
  for (const auto& [name, buffer] : train::buffers_of(*setup.built.model)) left.buffers.push_back(buffer.clone());
  const auto state = setup.optimizer_stack.optimizer->state();
  for (const auto& [name, tensor] : state.flat) left.optimizer.push_back(tensor.clone());
  for (const auto& [name, tensor] : state.scalars) left.optimizer.push_back(tensor.clone());
  return left;
}

void expect_equal(const Left& one, const Left& other) {
  ASSERT_EQ(one.steps.size(), other.steps.size());
  for (size_t i = 0; i < one.steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i + 1));
    EXPECT_EQ(one.steps[i].loss_sum.item<double>(), other.steps[i].loss_sum.item<double>());
    EXPECT_EQ(one.steps[i].gradient_norm.item<double>(), other.steps[i].gradient_norm.item<double>());
    EXPECT_EQ(one.steps[i].found_inf.item<float>(), other.steps[i].found_inf.item<float>());
  }
  EXPECT_TRUE(at::equal(one.values, other.values));
  EXPECT_TRUE(at::equal(one.random, other.random));
  for (size_t i = 0; i < one.buffers.size(); ++i) EXPECT_TRUE(at::equal(one.buffers[i], other.buffers[i])) << i;
  for (size_t i = 0; i < one.optimizer.size(); ++i) EXPECT_TRUE(at::equal(one.optimizer[i], other.optimizer[i])) << i;
}

constexpr const char* kGpt =
    "model: {type: gpt, config: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 8, dropout: 0.1}}\n"
    "data: {train: {format: synthetic, samples: 44, vocab_size: 11}}\n"
    "optimizer: {type: adamw, lr: 1e-2, weight_decay: 0.1}\n";
// The same image in every step: on a CPU our own code normalizes it, which a tape does not record.
constexpr const char* kResnet =
    "model: {type: resnet18, config: {stem: cifar}}\n"
    "data: {train: {format: synthetic, samples: 1}, image: {size: 16}}\n"
    "optimizer: {type: sgd, lr: 1e-2, momentum: 0.9, nesterov: true}\n";

struct Case {
  const char* name;
  const char* job;
  const char* precision;
  const char* train;
  int replays;  // passes of kSteps: the sixth step, the last of an epoch, has padding only in its second micro-batch

  friend void PrintTo(const Case& it, std::ostream* to) { *to << it.name; }
};

class RecordedTraining : public ::testing::TestWithParam<Case> {
 protected:
  Job job(const std::string& device, const std::string& graphs) {
    const Case& of = GetParam();
    const bool on_gpu = device == "cuda";
    const std::string precision = on_gpu && std::string(of.precision) == "fp64" ? "fp32" : of.precision;
    return load_job(
        {.file = folder_.write("job.yaml",
                               std::string("schema: 1\n") + of.job + "precision: " + precision + "\ndevice: " + device +
                                   (on_gpu ? "\ndeterministic: true" : "") +
                                   "\nlr_scheduler: {type: cosine}\ntrain: {max_steps: " + std::to_string(kSteps) +
                                   ", cuda_graphs: " + graphs + ", " + of.train + "}\n")});
  }
  testing_support::TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(
    Jobs, RecordedTraining,
    ::testing::Values(
        Case{"GptInFp64", kGpt, "fp64", "global_batch_size: 8, micro_batch_size: 4, max_grad_norm: 1.0", 10},
        Case{"GptInFp16", kGpt, "fp16", "global_batch_size: 8, micro_batch_size: 8, label_smoothing: 0.1", 5},
        Case{"GptSelective", kGpt, "bf16",
             "global_batch_size: 8, micro_batch_size: 4, activation_checkpointing: selective", 10},
        Case{"ResnetInFp64", kResnet, "fp64", "global_batch_size: 1", 6}),
    [](const auto& entry) { return entry.param.name; });

TEST_P(RecordedTraining, MatchesDirectTrainingByTape) {
  const Job job = this->job("cpu", "auto");
  Tape::Counts counts;
  const Left replayed = train(job, [&](at::Device) { return std::make_unique<Tape>(counts); });
  EXPECT_EQ(counts.replays, GetParam().replays);
  EXPECT_GT(counts.operators, 50u);
  expect_equal(replayed, train(job, [](at::Device) { return nullptr; }));
}

TEST_P(RecordedTraining, MatchesDirectTrainingByCudaGraph) {
  if (device::gpu_count() == 0) GTEST_SKIP() << "there is no GPU here";
  expect_equal(train(job("cuda", "auto"), device::make_captured_graphs),
               train(job("cuda", "off"), device::make_captured_graphs));
}

/// A recording that always fails.
class Refusal final : public device::CapturedGraphs {
 public:
  std::string capture(const std::function<void()>&) override { return "an operator waits for the device"; }
  void replay(size_t) override { ADD_FAILURE() << "nothing was recorded"; }
  void run_uncaptured(const std::function<void()>&) override { replay(0); }
};

TEST_P(RecordedTraining, FallsBackWhenRecordingIsImpossible) {
  const Job job = this->job("cpu", "auto");
  int made = 0;
  const Left refused = train(job, [&](at::Device) { return ++made, std::make_unique<Refusal>(); });
  EXPECT_EQ(made, 1);
  expect_equal(refused, train(job, [](at::Device) { return nullptr; }));
  const auto never = [&](at::Device) -> std::unique_ptr<device::CapturedGraphs> {
    ADD_FAILURE() << "it is off";
    return nullptr;
  };
  train(this->job("cpu", "off"), never);
}

/// Texts of nine lengths get three, each with graphs of its own. Little of a batch is padding: a CPU would leave that out
/// of the last layer, which a tape cannot repeat.
TEST(RecordedTexts, ReplayAGraphForEachLength) {
  testing_support::TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 64; ++i)
    lines += R"({"text": ")" +
             std::string(static_cast<size_t>(16 * (2 + i % 3) - 3 - i * 37 % 5 % 3), static_cast<char>('a' + i % 20)) +
             "\"}\n";
  const std::string data = folder.write("a.jsonl", lines);
  const Job job = load_job(
      {.file = folder.write(
           "job.yaml",
           "schema: 1\n"
           "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 64, dropout: 0.1}}\n"
           "data: {train: {path: " + data + ", format: jsonl}, text: {tokenizer: bytes}}\n"
           "optimizer: {type: adamw, lr: 1e-2}\nprecision: fp64\ndevice: cpu\n"
           "train: {max_steps: 120, global_batch_size: 2, micro_batch_size: 1}\n")});
  Tape::Counts counts;
  const Left replayed = train(job, [&](at::Device) { return std::make_unique<Tape>(counts); });
  EXPECT_EQ(counts.graphs, 2 * 3U) << "for the last pass of a step, and for those before it";
  EXPECT_LE(counts.graphs, 2 * static_cast<size_t>(train::Step::kMostGraphs));
  EXPECT_GT(counts.replays, 150) << "of 240 passes";
  expect_equal(replayed, train(job, [&](at::Device) { return std::make_unique<Refusal>(); }));
}

}  // namespace
}  // namespace gputrain::app

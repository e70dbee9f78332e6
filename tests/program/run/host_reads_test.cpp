// Steps queue their work and never wait for a result: a GPU would be idle while the host reads a number. On a CPU, the
// test looks for operators that pass numbers to the host.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/setup/training_loop.hpp"
#include "support/program.hpp"

namespace gputrain::app {
namespace {

using Counts = std::map<std::string, int>;

/// Counts operators by name while it exists. Ignores those inside the fused updates, which read the learning rate on a
/// CPU but not on a GPU.
class OperatorCounts {
 public:
  OperatorCounts() { counts().clear(); }
  OperatorCounts(const OperatorCounts&) = delete;
  OperatorCounts& operator=(const OperatorCounts&) = delete;
  ~OperatorCounts() { at::removeCallback(handle_); }

  static Counts& counts() {
    static Counts all;
    return all;
  }

 private:
  static bool is_update(const at::RecordFunction& function) {
    return std::string_view(function.name()).starts_with("aten::_fused_");
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    static std::mutex mutex;  // loaders and the backward pass use other threads
    const std::lock_guard lock(mutex);
    if (updates_ == 0) ++counts()[function.name()];
    updates_ += is_update(function);
    return nullptr;
  }
  static void end(const at::RecordFunction& function, at::ObserverContext*) { updates_ -= is_update(function); }

  static thread_local int updates_;  // running in this thread
  at::CallbackHandle handle_ =
      at::addGlobalCallback(at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION}));
};

thread_local int OperatorCounts::updates_ = 0;

constexpr const char* kGpt =
    "model: {type: gpt, config: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 8, dropout: 0.1}}\n"
    "data: {train: {format: synthetic, samples: 64, vocab_size: 11}}\n"
    "optimizer: {type: adamw, weight_decay: 0.1}\n";
constexpr const char* kResnet =
    "model: {type: resnet18, config: {stem: cifar}}\n"
    "data: {train: {format: synthetic, samples: 64}, image: {size: 32}}\n"
    "optimizer: {type: sgd, momentum: 0.9, nesterov: true}\n";

struct Case {
  const char* name;
  const char* job;
  const char* precision;
  const char* recompute = "none";

  friend void PrintTo(const Case& it, std::ostream* to) { *to << it.name; }
};

class StepHostReads : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Jobs, StepHostReads,
                         ::testing::Values(Case{"GptInBf16", kGpt, "bf16"}, Case{"GptInFp16", kGpt, "fp16"},
                                           Case{"GptSelective", kGpt, "bf16", "selective"},
                                           Case{"GptByBlocks", kGpt, "bf16", "block"},
                                           Case{"ResnetInBf16", kResnet, "bf16"}),
                         [](const auto& entry) { return entry.param.name; });

TEST_P(StepHostReads, NeverReadNumbersFromDevice) {
  const testing_support::TemporaryFolder folder;
  const Case& of = GetParam();
  const std::string path = folder.write(
      "job.yaml", std::string("schema: 1\n") + of.job + "precision: " + of.precision +
                      "\ntrain: {max_steps: 4, global_batch_size: 8, micro_batch_size: 4, max_grad_norm: 1.0, "
                      "label_smoothing: 0.1, activation_checkpointing: " +
                      of.recompute + "}\n");
  const Job job = load_job({.file = path});
  TrainingSetup setup(job);
  TrainingLoop loop(
      job.spec(), setup, [] { return train::Stop::none; }, [] {});
  train::Progress progress;
  loop.run(progress, {}, 2);  // the first step checks the arena
  Counts found;
  {
    const OperatorCounts counting;
    loop.run(progress, {});
    found = OperatorCounts::counts();
  }
  EXPECT_EQ(progress.step, 4);
  EXPECT_GT(found["aten::addmm"] + found["aten::mm"] + found["aten::conv2d"], 0);
  for (const char* reading : {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal",
                              "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::bincount"}) {
    EXPECT_EQ(found[reading], 0) << reading;
  }
}

}  // namespace
}  // namespace gputrain::app

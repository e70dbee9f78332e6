// All ranks replay a step or none does, because its collectives are part of the recording.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/sum.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/setup/training_loop.hpp"
#include "support/program.hpp"

namespace gputrain::app {
namespace {

using gputrain::testing::RankBody;
using gputrain::testing::RankProcesses;
using gputrain::testing::RankResult;
using ::testing::HasSubstr;

/// Keeps the functions and calls them again.
class Repetition final : public device::CapturedGraphs {
 public:
  explicit Repetition(int& replays, std::string obstacle) : replays_(replays), obstacle_(std::move(obstacle)) {}
  std::string capture(const std::function<void()>& work) override {
    if (obstacle_.empty()) works_.push_back(work);
    return obstacle_;
  }
  void replay(size_t graph) override {
    ++replays_;
    works_[graph]();
  }
  void run_uncaptured(const std::function<void()>& work) override { work(); }

 private:
  int& replays_;
  std::string obstacle_;
  std::vector<std::function<void()>> works_;
};

/// Trains, and prints the number of replayed steps and the results.
const RankBody kTrain("train", [] {
  const Job job = load_job({.file = std::getenv("JOB_FILE")});
  TrainingSetup setup(job);
  const std::string recorded = std::getenv("RECORDED");
  const bool is_recorded = recorded == "all" || recorded == std::to_string(setup.context.rank());
  int replays = 0;
  const auto make = [&](at::Device) -> std::unique_ptr<device::CapturedGraphs> {
    if (recorded == "none") return nullptr;
    return std::make_unique<Repetition>(replays, is_recorded ? "" : "an operator waits for the device");
  };
  train::Progress progress;
  TrainingLoop(
      job.spec(), setup, [] { return train::Stop::none; }, [] {}, make)
      .run(progress, {});
  std::printf("replays %d\nsum %a\n", replays, setup.built.arena->values().sum().item<double>());
  setup.context.groups.control().barrier("end");
  return 0;
});

std::string line_of(const std::string& output, const std::string& word) {
  const size_t at = output.find(word + " ");
  return at == std::string::npos ? "" : output.substr(at, output.find('\n', at) - at);
}

class RecordedRanks : public ::testing::TestWithParam<const char*> {
 protected:
  /// Nine steps of two ranks. The sixth, the last of an epoch, has a single sample, for rank 1.
  std::vector<RankResult> train(const std::string& recorded, int samples = 41, int steps = 9) {
    const std::string job = folder_.write("job.yaml", std::string(R"(
schema: 1
model: {type: gpt, config: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 8, dropout: 0.1}}
data: {train: {format: synthetic, samples: )") + std::to_string(samples) + R"(, vocab_size: 11}}
optimizer: {type: adamw, lr: 1e-2}
precision: fp64
device: cpu
train: {max_steps: )" + std::to_string(steps) + R"(, global_batch_size: 8}
parallel: )" + GetParam() + "\n");
    return RankProcesses("train", 2, {{"JOB_FILE", job}, {"RECORDED", recorded}}).finish();
  }
  testing_support::TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Sharing, RecordedRanks,
                         ::testing::Values("{shard: none}", "{shard: optimizer}", "{shard: gradients}"),
                         [](const auto& entry) {
                           const std::string text = entry.param;  // {shard: NAME}
                           return text.substr(8, text.size() - 9);
                         });

void expect_same_training(const std::vector<RankResult>& found, const std::vector<RankResult>& anew, int replays) {
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(found[rank].exit_code, 0) << found[rank].output;
    EXPECT_EQ(line_of(found[rank].output, "replays"), "replays " + std::to_string(replays));
    EXPECT_EQ(line_of(found[rank].output, "sum"), line_of(anew[rank].output, "sum"));
  }
}

TEST_P(RecordedRanks, ReplayTheSameSteps) { expect_same_training(train("all"), train("none"), 5); }

/// The last step of an epoch has three samples for rank 0, and for rank 1 four as every step: rank 0 alone records it,
/// in the fourth epoch.
TEST_P(RecordedRanks, RecordNewShapesInStepsThatOthersReplay) {
  constexpr int kFourEpochs = 25, kQueued = 3 + 3;  // before both shapes are known
  expect_same_training(train("all", 47, kFourEpochs), train("none", 47, kFourEpochs), kFourEpochs - kQueued);
}

TEST_P(RecordedRanks, ReplayNothingIfOneCannotRecord) {
  const auto refused = train("0");
  expect_same_training(refused, train("none"), 0);
  EXPECT_THAT(refused[0].output, HasSubstr("a step cannot be one CUDA graph: it failed on another rank"));
}

}  // namespace
}  // namespace gputrain::app

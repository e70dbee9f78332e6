// Runs of two ranks with a fake GPU each: collectives in graphs, and their shortages and hangs.
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda/pretend_gpu.hpp"

namespace gputrain {
namespace {

using namespace testing_support;
using testing::HasSubstr;
using testing::IsEmpty;

class PretendGpuRanks : public PretendGpu {
 protected:
  std::vector<std::string> on_two_ranks(const std::vector<std::string>& settings) {
    std::vector<std::string> arguments{"launch",       "--nproc-per-node", "2", "--max-restarts", "0", "run", gpt(),
                                       "--output-dir", folder_ / "run"};
    for (const std::string& set : settings) arguments.insert(arguments.end(), {"--set", set});
    return arguments;
  }
};

TEST_F(PretendGpuRanks, ReportNcclShortageAsOutOfMemory) {
  const Result result = run(on_two_ranks({}), {{"PRETEND_GPUS", "2"}, {"PRETEND_NCCL_SHORTAGE", "4"}});
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("out of memory"));
  EXPECT_THAT(result.err, HasSubstr("of the GPU"));
  EXPECT_THAT(report_.refused, IsEmpty());
}

// The collective that runs out of memory belongs to the captured step, while another one is in flight.
class PretendGpuShortage : public PretendGpuRanks {
 protected:
  void expect_to_go_on_without_a_graph(const std::string& setting, int collective) {
    const Result result =
        run(on_two_ranks({setting}), {{"PRETEND_GPUS", "2"}, {"PRETEND_NCCL_SHORTAGE", std::to_string(collective)}});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr("a step cannot be one CUDA graph"));
    EXPECT_THAT(report_.refused, IsEmpty());
  }
};

TEST_F(PretendGpuShortage, SkipsGraphWithoutMemoryForSecondBucket) {
  expect_to_go_on_without_a_graph("parallel.bucket_cap_mb=0.5", 12);
}

TEST_F(PretendGpuShortage, SkipsGraphWithoutMemoryForSecondReduceScatter) {
  expect_to_go_on_without_a_graph("parallel.shard=optimizer", 18);
}

class PretendGpuHang : public PretendGpuRanks {
 protected:
  /// Hangs in collective `number`; a replayed step counts as one.
  std::string end_with_hang(int number, std::vector<std::string> settings) {
    settings.emplace_back("parallel.timeout=2s");
    const Result result =
        run(on_two_ranks(settings), {{"PRETEND_GPUS", "2"}, {"PRETEND_HANG", std::to_string(number)}});
    EXPECT_EQ(result.exit_code, 138) << result.out << result.err;
    EXPECT_GE(count("ncclCommAbort"), 2);
    expect_nothing_refused(result);
    return result.err;
  }
};

TEST_F(PretendGpuHang, EndsReplayedStepAndSaysWhere) {
  EXPECT_THAT(end_with_hang(10, {}),
              HasSubstr("step 6 failed after 2.0 s (deadline 2.0 s): the GPU has not finished it"));
}

// Here c10d's watchdog detects the hang and aborts.
TEST_F(PretendGpuHang, EndsCollective) {
  EXPECT_THAT(end_with_hang(3, {"train.cuda_graphs=off"}), HasSubstr("an earlier collective passed its deadline"));
}

// All ranks fail with the same error at once; a rank may end because it hears of another's error first.
TEST_F(PretendGpuRanks, KeepExitCodeWhenNcclAbortHangs) {
  const Result result = run(on_two_ranks({"precision=fp16"}), {{"PRETEND_GPUS", "2"}, {"PRETEND_ABORT_HANGS", "1"}});
  EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: training diverged: gradients are not finite at any loss scale at step 12"));
}

TEST_F(PretendGpuRanks, QueueStepAnewWhenOneRankHasNoSamples) {
  const Result result =
      run(on_two_ranks({"data.train.samples=41", "train.global_batch_size=8"}), {{"PRETEND_GPUS", "2"}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  expect_nothing_refused(result);
  EXPECT_EQ(count("launched graphs"), 2 * (kSteps - 3 - 2));  // the 6th and the 12th step have one sample
}

class PretendGpuRanksStep : public PretendGpuRanks, public testing::WithParamInterface<Variant> {};

TEST_P(PretendGpuRanksStep, SendsGradientsInOneGraph) {
  const Result result = run(on_two_ranks(GetParam().second), {{"PRETEND_GPUS", "2"}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  expect_nothing_refused(result);
  EXPECT_EQ(count("launched graphs"), 2 * (kSteps - 3));
  EXPECT_GE(count("ncclAllReduce") + count("ncclReduce") + count("ncclReduceScatter"), 2 * kSteps);
}

INSTANTIATE_TEST_SUITE_P(Of, PretendGpuRanksStep,
                         testing::Values(Variant{"two", {}}, Variant{"dropout", {"model.config.dropout=0.1"}},
                                         Variant{"optimizer", {"parallel.shard=optimizer"}},
                                         Variant{"gradients", {"parallel.shard=gradients"}},
                                         Variant{"fp16", {"parallel.compress=fp16"}}),
                         [](const auto& tested) { return tested.param.first; });

}  // namespace
}  // namespace gputrain

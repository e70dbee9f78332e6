// Whole runs on a fake GPU: a GPU would accept all CUDA calls of the program, every step is one graph where promised,
// and our kernels are selected. Computed values are meaningless here.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fake_cuda/pretend_gpu.hpp"

namespace gputrain {
namespace {

using namespace testing_support;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kMicroBatches = 2;  // of a step of gpt(), a graph each

class PretendGpuStep : public PretendGpu, public testing::WithParamInterface<Variant> {};

TEST_P(PretendGpuStep, IsOneGraphFromFourthStepOn) {
  const Result result = train(gpt(), GetParam().second);
  EXPECT_THAT(result.out, HasSubstr("a step is one CUDA graph from the 4th on"));
  EXPECT_EQ(count("launched graphs"), kMicroBatches * (kSteps - 3));
}

INSTANTIATE_TEST_SUITE_P(
    Of, PretendGpuStep,
    testing::Values(Variant{"bf16", {}}, Variant{"fp32", {"precision=fp32"}}, Variant{"tf32", {"precision=tf32"}},
                    Variant{"dropout", {"model.config.dropout=0.1"}}, Variant{"deterministic", {"deterministic=true"}},
                    Variant{"selective", {"train.activation_checkpointing=selective"}},
                    Variant{"block", {"train.activation_checkpointing=block"}},
                    Variant{"narrow_adamw", {"optimizer={type: adamw, lr: 1e-3, master: bf16, averages: bf16}"}},
                    Variant{"narrow_adamw8bit",
                            {"optimizer={type: adamw8bit, lr: 1e-3, master: bf16}",
                             "train.activation_checkpointing=block"}},
                    Variant{"llama",
                            {"model.config={n_layer: 2, n_head: 4, n_kv_head: 2, n_embd: 128, block_size: 64, "
                             "position: rotary, norm: rmsnorm, activation: swiglu}"}},
                    Variant{"experts",
                            {"model.config={n_layer: 2, n_head: 4, n_embd: 128, block_size: 64, position: rotary, "
                             "norm: rmsnorm, activation: swiglu, n_expert: 8, experts_per_token: 2}"}}),
    [](const auto& tested) { return tested.param.first; });

TEST_F(PretendGpu, ScalesLossWithinGraph) {
  const Result result = run({"run", gpt(), "--output-dir", folder_ / "run", "--set", "precision=fp16"});
  EXPECT_EQ(result.exit_code, 4) << "a scale that no kernel has computed\n" << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("not finite at any loss scale at step 12"));
  expect_nothing_refused(result);
  EXPECT_EQ(count("launched graphs"), kMicroBatches * (kSteps - 3));
}

TEST_F(PretendGpu, WaitsForNothingInAStep) {
  const auto waits_of = [this](const std::string& steps) {
    std::filesystem::remove_all(folder_.path() / "run");
    train(gpt(), {"train.max_steps=" + steps});
    return waits();
  };
  waits_of("12");  // the first run selects the kernels
  EXPECT_EQ(waits_of("40"), waits_of("12"));
}

TEST_F(PretendGpu, WaitsForASaveOnceNotPerTensor) {
  const auto waits_of = [this](const std::string& interval) {
    std::filesystem::remove_all(folder_.path() / "run");
    train(gpt(), {"train.max_steps=21", "checkpoint.interval=" + interval});
    return waits();
  };
  waits_of("20");
  const int64_t of_one_save = waits_of("20"), of_four = waits_of("5");
  EXPECT_LE(of_four - of_one_save, 3 * 20);  // the model has 27 tensors, and AdamW two more per tensor
}

TEST_F(PretendGpu, LocksLittleMoreMemoryThanASaveWrites) {
  struct Locked {
    int64_t calls, bytes;
  };
  const auto locked_with = [this](const std::string& interval) {
    std::filesystem::remove_all(folder_.path() / "run");
    train(gpt(), {"checkpoint.interval=" + interval, "checkpoint.keep_last=1", "model.config.n_embd=260"});
    return Locked{.calls = count("cudaHostAlloc"), .bytes = count("page-locked bytes")};
  };
  const Locked without = locked_with("null"), with = locked_with("6");
  int64_t written = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path() / "run/ckpt")) {
    if (entry.path().extension() == ".safetensors") written += static_cast<int64_t>(entry.file_size());
  }
  EXPECT_GT(written, 15'000'000);
  EXPECT_GE(with.bytes - without.bytes, written * 9 / 10);
  EXPECT_LE(with.bytes - without.bytes, written * 12 / 10);
  EXPECT_LE(with.calls - without.calls, 12);
}

TEST_F(PretendGpu, CopiesToTheHostWithoutWaiting) {
  const auto waits_of = [this](const std::string& steps) {
    std::filesystem::remove_all(folder_.path() / "run");
    train(gpt(), {"train.activation_checkpointing=block", "train.offload.activations=true",
                  "train.offload.optimizer=true", "train.max_steps=" + steps});
    return waits();
  };
  waits_of("12");  // the first run selects the kernels
  EXPECT_EQ(waits_of("40"), waits_of("12"));
  EXPECT_EQ(count("launched graphs"), 0);
}

TEST_F(PretendGpu, LocksTheMemoryOfOffloadedActivationsThatADryRunForetells) {
  const auto locked_with = [this](const std::string& offloads) {
    std::filesystem::remove_all(folder_.path() / "run");
    train(gpt(),
          {"train.activation_checkpointing=block", "train.cuda_graphs=off", "train.offload.activations=" + offloads});
    return count("page-locked bytes");
  };
  const Result foretold =
      gputrain({"run", gpt(), "--dry-run", "--world-size", "1", "--json", "--set", "device=cpu", "--set",
                "train.activation_checkpointing=block", "--set", "train.offload.activations=true"});
  ASSERT_EQ(foretold.exit_code, 0) << foretold.err;
  const int64_t bytes = nlohmann::json::parse(foretold.out)["memory"]["activations_on_host"];
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(locked_with("true") - locked_with("false"), bytes);
}

TEST_F(PretendGpu, OffloadsToOrdinaryMemoryIfNoneCanBeLocked) {
  const Result result = train(
      gpt(), {"train.activation_checkpointing=block", "train.offload.activations=true", "train.offload.optimizer=true"},
      {{"PRETEND_MOST_LOCKED", "65536"}});
  EXPECT_THAT(result.err, HasSubstr("no page-locked memory for train.offload"));
}

TEST_F(PretendGpu, ComparesFusedWithSeparateSums) {
  train(gpt());
  EXPECT_THAT(read_file(folder_ / "kernel_choices.jsonl"), HasSubstr("sums with product"));
}

TEST_F(PretendGpu, ComparesFusedSumsWithProductOfTheStep) {
  train(gpt(), {"model.config.n_embd=40"});  // the second block's weights then start at odd multiples of 128 bytes
  std::istringstream lines(read_file(folder_ / "kernel_choices.jsonl"));
  std::set<std::string> products;  // whose fastest algorithm is known; it is the baseline
  bool has_odd_one = false;
  for (std::string line; std::getline(lines, line);) {
    const std::string name = nlohmann::json::parse(line)["operator"];
    if (name.starts_with("product by")) products.insert(name);
    if (!name.starts_with("sums with ")) continue;
    EXPECT_THAT(products, Contains(name.substr(name.find("product by"))));
    has_odd_one |= name.find(" 128 256 ") != std::string::npos;  // alignment of the result and of the sums
  }
  EXPECT_TRUE(has_odd_one);
}

TEST_F(PretendGpu, PicksKernelsFromPartOfTheImages) {
  const Result result = train(resnet(/*batch=*/256, /*size=*/224));
  EXPECT_THAT(result.out, HasSubstr("a step is one CUDA graph from the 4th on"));
  EXPECT_EQ(count("launched graphs"), 3);
}

/// With batch norm, the last step of an epoch is smaller, here the fourth: shapes that libraries have not seen cannot
/// be captured.
TEST_F(PretendGpu, RecordsOnlyStepsOfKnownShapes) {
  const std::string job = folder_.write("uneven.yaml", R"(
schema: 1
name: uneven
model: {type: convnet, config: {channels: [8, 16], batch_norm: true}}
precision: bf16
optimizer: {type: sgd, lr: 0.1, momentum: 0.9}
checkpoint: {interval: null}
log: {interval: 100}
data: {train: {format: synthetic, samples: 14, num_classes: 10}, image: {size: 32}}
train: {max_steps: 12, nonfinite: skip, max_skips_in_a_row: 1000, global_batch_size: 4}
)");
  train(job);
  EXPECT_EQ(count("launched graphs"), kSteps - 4 - 2);  // from the 5th step on, except the 8th and the 12th
}

TEST_F(PretendGpu, EvaluatesAndSavesBetweenReplays) {
  const std::string job = gpt("{format: text, path: " + write_text(folder_) + "}",
                              "eval: {interval: 3, sample: {prompt: \"e\", max_new_tokens: 20}}");
  const std::vector<std::string> settings{"checkpoint.interval=4", "data.val.split=10%"};
  const Result result = train(job, settings);
  EXPECT_THAT(result.out, HasSubstr("val/loss"));
  EXPECT_GT(count("launched graphs"), 0);
  std::vector<std::string> more = settings;
  more.push_back("train.max_steps=18");
  const Result longer = train(job, more);
  EXPECT_THAT(longer.out, HasSubstr("18/18 steps"));
}

TEST_F(PretendGpu, RecomputesDropoutWithoutGraphAndSaysWhy) {
  const Result result = train(gpt(), {"train.activation_checkpointing=block", "model.config.dropout=0.1"});
  EXPECT_THAT(result.out + result.err, HasSubstr("cannot be one CUDA graph: recomputed blocks draw random numbers"));
  EXPECT_EQ(count("launched graphs"), 0);
}

TEST_F(PretendGpu, TriesNoKernelsWithoutTimeForThem) {
  train(gpt(), {"train.kernel_trials=0s"});
  const std::string choices = read_file(folder_ / "kernel_choices.jsonl");
  EXPECT_THAT(choices, testing::Not(HasSubstr("product by cublasLt")));
  EXPECT_GT(count("launched graphs"), 0);
}

TEST_F(PretendGpu, FindsMicroBatchThatFits) {
  const Result result = train(gpt(), {"train.micro_batch_size=auto", "train.global_batch_size=64"});
  EXPECT_THAT(result.out, HasSubstr("(auto: fastest that fits)"));
}

TEST_F(PretendGpu, ContinuesAfterRecordingRanOutOfMemory) {
  const Result result =
      train(gpt(), {"train.micro_batch_size=auto", "model.config.dropout=0.1"}, {{"PRETEND_CAPTURE_SHORTAGE", "3"}});
  EXPECT_THAT(result.out, HasSubstr("2: out of memory"));
  EXPECT_THAT(result.out, HasSubstr("a step is one CUDA graph from the 4th on"));
}

TEST_F(PretendGpu, IsNamedWhenTooSmallForTheModel) {
  const Result result = run({"run", gpt(), "--output-dir", folder_ / "run", "--set", "model.config.n_embd=512"},
                            {{"PRETEND_GPU_MEMORY", std::to_string(60 << 20)}});
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("60.0 MiB  of the GPU"));
  EXPECT_THAT(report_.refused, IsEmpty());
}

/// The GPU fails in a step, in the save at the end, or while the weights are written.
class PretendGpuFault : public PretendGpu, public testing::WithParamInterface<Variant> {
 protected:
  Result run_in(const std::string& folder, const std::map<std::string, std::string>& settings = {}) {
    std::vector<std::string> arguments{"run", gpt(), "--output-dir", folder_ / folder};
    for (const std::string& set : GetParam().second) arguments.insert(arguments.end(), {"--set", set});
    return run(arguments, settings);
  }
};

TEST_P(PretendGpuFault, EndsWithItsPageAndSummary) {
  run_in("first");  // chooses kernels
  ASSERT_EQ(run_in("whole").exit_code, 0);
  const int64_t all = count("queued work");
  for (const int64_t before_end : {all / 2, all / 8, int64_t{20}}) {
    const std::string folder = "faulty" + std::to_string(before_end);
    const Result result = run_in(folder, {{"PRETEND_FAULT", std::to_string(all - before_end)}});
    EXPECT_EQ(result.exit_code, 138) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr("error: a GPU has failed"));
    EXPECT_THAT(read_file(folder_.path() / folder / "summary.json"), HasSubstr("\"exit_code\": 138"));
  }
}

INSTANTIATE_TEST_SUITE_P(Of, PretendGpuFault,
                         testing::Values(Variant{"Graph", {}}, Variant{"Eager", {"train.cuda_graphs=off"}}),
                         [](const auto& one) { return one.param.first; });

}  // namespace
}  // namespace gputrain

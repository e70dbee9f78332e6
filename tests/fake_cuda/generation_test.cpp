// Text on the fake GPU: a token is one graph, and no length of a text costs a choice of kernels.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda/pretend_gpu.hpp"

namespace gputrain::testing_support {
namespace {

constexpr int kTokens = 64;

class PretendGpuTokens : public PretendGpu {
 protected:
  void learn(const std::string& precision = "bf16") {
    train(gpt("{format: text, path: " + write_text(folder_) + "}"),
          {"precision=" + precision, "train.max_steps=2",
           "model.config={n_layer: 2, n_head: 8, n_kv_head: 2, n_embd: 128, block_size: 512, position: rotary, norm: "
           "rmsnorm, activation: swiglu, qk_norm: true}"});
  }

  void write(int prompts, int tokens, const std::vector<std::string>& more = {}) {
    std::ofstream file(folder_ / "prompts.txt");
    for (int i = 0; i < prompts; ++i) file << std::string(static_cast<size_t>(3 + i % 9), 'e') << "\n";
    file.close();
    std::vector<std::string> arguments{
        "generate",     folder_ / "run",         "--prompts",        folder_ / "prompts.txt",
        "--batch-size", std::to_string(prompts), "--max-new-tokens", std::to_string(tokens)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.err, testing::Not(testing::HasSubstr("warning")));
    expect_nothing_refused(result);
  }

  int64_t choices() const {
    const std::string lines = read_file(folder_ / "kernel_choices.jsonl");
    return std::count(lines.begin(), lines.end(), '\n');
  }
};

TEST_F(PretendGpuTokens, AreOneGraphEach) {
  for (const std::string precision : {"bf16", "fp32"}) {
    std::filesystem::remove_all(folder_.path() / "run");
    learn(precision);
    for (const int prompts : {1, 32}) {
      write(prompts, kTokens);
      EXPECT_EQ(count("captured graphs"), 1);
      EXPECT_EQ(count("launched graphs"), kTokens - 2);
    }
  }
}

TEST_F(PretendGpuTokens, NeedNoKernelChoicesForTheirPlace) {
  learn();
  for (const int prompts : {1, 32}) {
    write(prompts, 2);
    const int64_t of_two = choices();
    write(prompts, kTokens);
    EXPECT_EQ(choices(), of_two);
    const int64_t of_a_prompt = count("kernels");
    write(prompts, kTokens / 2);
    EXPECT_LT(of_a_prompt - count("kernels"), kTokens / 2 * 12) << "kernels that no graph launches";
  }
}

TEST_F(PretendGpuTokens, AreQueuedWhereGraphsAreOff) {
  learn();
  write(1, kTokens, {"--set", "train.cuda_graphs=off"});
  EXPECT_EQ(count("captured graphs"), 0);
}

}  // namespace
}  // namespace gputrain::testing_support

// Runs the program on the fake GPU and reads what that has seen.
#pragma once

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {

inline constexpr int kSteps = 12;

/// What the processes reported about their use of the fake GPU.
struct Report {
  std::string refused;
  std::map<std::string, int64_t> counts;
};

inline Report read_reports(const std::filesystem::path& folder) {
  Report report;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::istringstream text(read_file(entry.path()));
    std::string line;
    bool is_of_refusal = false;
    while (std::getline(text, line)) {
      if (line.starts_with("COUNT ")) {
        std::istringstream fields(line.substr(6));
        int64_t number = 0;
        std::string what;
        std::getline(fields >> number >> std::ws, what);
        report.counts[what] += number;
      }
      is_of_refusal = !line.starts_with("COUNT ") && (is_of_refusal || line.starts_with("REFUSED"));
      if (is_of_refusal) report.refused += line + "\n";
    }
  }
  return report;
}

class PretendGpu : public ::testing::Test {
 protected:
  /// Runs the program with settings of the fake GPU.
  Result run(std::vector<std::string> arguments, std::map<std::string, std::string> settings = {}) {
    std::filesystem::remove_all(folder_.path() / "reports");
    std::filesystem::create_directory(folder_.path() / "reports");
    settings.insert({{"LD_PRELOAD", FAKE_CUDA_LIBRARY},
                     {"LD_LIBRARY_PATH", FAKE_CUDA_DRIVER},
                     {"PRETEND_GPU_REPORT", folder_ / "reports/of"},
                     {"GPUTRAIN_KERNEL_CHOICES", folder_ / "kernel_choices.jsonl"}});
    const Result result = gputrain(std::move(arguments), settings);
    report_ = read_reports(folder_.path() / "reports");
    return result;
  }

  /// Trains a job that must succeed without a rejected call or a failed kernel of ours.
  Result train(const std::string& job, const std::vector<std::string>& more = {},
               const std::map<std::string, std::string>& settings = {}) {
    std::vector<std::string> arguments{"run", job, "--accept", "--output-dir", folder_ / "run"};
    for (const std::string& set : more) arguments.insert(arguments.end(), {"--set", set});
    const Result result = run(arguments, settings);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    expect_nothing_refused(result);
    return result;
  }

  void expect_nothing_refused(const Result& result) const {
    EXPECT_THAT(report_.refused, ::testing::IsEmpty());
    EXPECT_THAT(result.err, ::testing::Not(::testing::HasSubstr("our kernel failed")));
    EXPECT_GT(count("kernels"), 0) << "it ran on the CPU";
  }

  int64_t count(const std::string& what) const {
    const auto found = report_.counts.find(what);
    return found == report_.counts.end() ? 0 : found->second;
  }

  /// Number of calls that may block until the GPU is done.
  int64_t waits() const {
    int64_t sum = 0;
    for (const auto& [what, number] : report_.counts) sum += what.starts_with("waits: ") ? number : 0;
    return sum;
  }

  std::string gpt(const std::string& data = "{format: synthetic, samples: 4096, vocab_size: 96}",
                  const std::string& extra = "") {
    return folder_.write("gpt.yaml", extra + "\ndata: {train: " + data + "}" + R"(
schema: 1
name: gpt
model: {type: gpt, config: {n_layer: 2, n_head: 4, n_embd: 128, block_size: 64}}
precision: bf16
train: {max_steps: 12, global_batch_size: 16, micro_batch_size: 8, max_grad_norm: 1.0, nonfinite: skip, max_skips_in_a_row: 1000}
optimizer: {type: adamw, lr: 1e-3}
checkpoint: {interval: null}
log: {interval: 100}
)");
  }

  std::string resnet(int batch, int size) {
    return folder_.write("resnet.yaml", R"(
schema: 1
name: resnet
model: {type: resnet50, config: {num_classes: 1000}}
precision: bf16
optimizer: {type: sgd, lr: 0.1, momentum: 0.9}
checkpoint: {interval: null}
log: {interval: 100}
data: {train: {format: synthetic, samples: )" +
                                            std::to_string(batch) + R"(, num_classes: 1000}, image: {size: )" +
                                            std::to_string(size) + R"(}}
train: {max_steps: 6, nonfinite: skip, max_skips_in_a_row: 1000, global_batch_size: )" +
                                            std::to_string(batch) + "}\n");
  }

  TemporaryFolder folder_;
  Report report_;
};

/// A name and its settings.
using Variant = std::pair<std::string, std::vector<std::string>>;

}  // namespace gputrain::testing_support

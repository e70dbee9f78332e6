// Texts of many lengths on the fake GPU: few shapes, and so few trials of kernels, few graphs, and nearly all steps
// replayed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fake_cuda/pretend_gpu.hpp"
#include "support/byte_tokenizer.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;

constexpr int kTexts = 480;
constexpr int64_t kRows = 128;  // divides the rows of every batch, 8 texts of a multiple of 16 tokens, and no layer
constexpr int64_t kShortest = 20, kLengths = 200;

std::string text_of(int64_t length) { return std::string(static_cast<size_t>(length), 'a'); }

/// A record of `length` bytes of text for a task.
json record_of(const std::string& task, int64_t length) {
  if (task == "conversations")
    return {{"messages",
             {{{"role", "user"}, {"content", text_of(length / 2)}},
              {{"role", "assistant"}, {"content", text_of(length - length / 2)}}}}};
  if (task == "dpo")
    return {{"prompt", text_of(kShortest / 2)},
            {"chosen", text_of(length - kShortest / 2)},
            {"rejected", text_of(kShortest + kLengths - length)}};
  if (task == "text_classification") return {{"text", text_of(length)}, {"label", length % 2 == 0 ? "even" : "odd"}};
  return {{"text", text_of(length)}};
}

class PretendGpuTexts : public PretendGpu {
 protected:
  /// Texts of 200 lengths in any order.
  std::string write_texts(const std::string& task) const {
    std::mt19937 random(1);  // NOLINT: the same texts every time
    std::ofstream lines(folder_ / "texts.jsonl");
    for (int i = 0; i < kTexts; ++i)
      lines << record_of(task, kShortest + static_cast<int64_t>(random() % kLengths)).dump() << "\n";
    return folder_ / "texts.jsonl";
  }

  /// A tokenizer with so many tokens.
  void write_tokenizer(size_t vocabulary) const {
    std::vector<std::string> special{"<|im_start|>", "<|im_end|>", "[MASK]"};
    while (special.size() + 256 < vocabulary) special.push_back("<|" + std::to_string(special.size()) + "|>");
    folder_.write("tokenizer/tokenizer.json", byte_tokenizer(special).dump());
  }

  std::string job(const std::string& task, int steps) {
    std::filesystem::create_directories(folder_ / "tokenizer");
    write_tokenizer(/*vocabulary=*/259);
    folder_.write("tokenizer/tokenizer_config.json",
                  json{{"eos_token", "<|im_end|>"}, {"mask_token", "[MASK]"}, {"pad_token", "<|im_end|>"}}.dump());
    const bool is_of_encoder = task == "text_classification" || task == "masked_language_model";
    const std::string llama =
        "{type: gpt, config: {n_layer: 2, n_head: 4, n_kv_head: 2, n_embd: 96, n_inner: 272, block_size: 512, "
        "position: rotary, "
        "norm: rmsnorm, activation: swiglu}}";
    const std::string head = task == "masked_language_model" ? "mlm" : "classifier";
    const std::string model = is_of_encoder ? "{type: bert, config: {head: " + head +
                                                  ", n_layer: 2, n_head: 2, n_embd: 96, n_inner: 272, dropout: 0.1}}"
                                            : llama;
    const std::string kind = task == "conversations" ? "" : "task: {type: " + task + "}\n";
    return folder_.write(
        "job.yaml", "schema: 1\nname: lengths\nmodel: " + model + "\n" + kind +
                        "data: {train: {path: " + write_texts(task) +
                        ", format: jsonl}, text: {tokenizer: published, tokenizer_path: " + (folder_ / "tokenizer") +
                        ", max_length: 384" + (task == "conversations" ? ", chat_template: chatml" : "") + "}}" +
                        R"(
precision: bf16
train: {max_steps: )" + std::to_string(steps) +
                        R"(, global_batch_size: 8, nonfinite: skip, max_skips_in_a_row: 1000}
optimizer: {type: adamw, lr: 1e-3}
checkpoint: {interval: null}
log: {interval: 100}
)");
  }
};

class PretendGpuLengths : public PretendGpuTexts, public testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(Of, PretendGpuLengths,
                         testing::Values("conversations", "dpo", "text_classification", "masked_language_model"),
                         [](const auto& one) { return one.param; });

/// What was tried, without the lengths of the texts and the numbers of rows, which are multiples of kRows.
std::map<std::string, int> trials_by_operator(const std::string& choices) {
  static const std::regex texts("(8|16)x[0-9]+"), numbers("[0-9]+");
  std::map<std::string, int> trials;
  std::istringstream lines(choices);
  for (std::string line; std::getline(lines, line);) {
    const std::string tried = std::regex_replace(json::parse(line)["operator"].get<std::string>(), texts, "texts");
    std::string name;
    for (std::sregex_iterator next(tried.begin(), tried.end(), numbers), end; next != end; ++next) {
      const bool is_of_rows = std::stoll(next->str()) % kRows == 0;
      name += next->prefix().str() + (is_of_rows ? "rows" : next->str());
    }
    ++trials[name];
  }
  return trials;
}

TEST_P(PretendGpuLengths, AreFewShapes) {
  constexpr int kStepsOfRun = 300, kMostGraphs = 8, kMostTrials = 40;
  train(job(GetParam(), kStepsOfRun));
  EXPECT_LE(count("captured graphs"), kMostGraphs);
  EXPECT_GE(count("launched graphs"), kStepsOfRun * 9 / 10);
  const auto trials = trials_by_operator(read_file(folder_ / "kernel_choices.jsonl"));
  EXPECT_FALSE(trials.empty());
  for (const auto& [name, number] : trials) EXPECT_LE(number, kMostTrials) << name;
}

/// A mask of a row's length squared would be larger than all else. Heads of 12 channels, which no kernel takes, need
/// it.
TEST_F(PretendGpuTexts, NeedNoMaskWhereTheyShareRows) {
  constexpr int64_t kRow = 4096, kMask = kRow * kRow * 2;
  const auto peak_with = [this](const std::string& heads) {
    std::filesystem::remove_all(folder_.path() / "run");
    train(job("conversations", 12), {"data.text.packing=true", "data.text.max_length=4096",
                                     "model.config.block_size=4096", "train.global_batch_size=1", heads});
    EXPECT_EQ(count("launched graphs"), 12 - 3);
    return json::parse(read_file(folder_ / "run/summary.json"))["peak_memory_bytes"].get<int64_t>();
  };
  EXPECT_GT(peak_with("model.config.head_dim=12"), peak_with("model.config.head_dim=24") + kMask);
}

/// Of a part of the rows, logits exist once and in 16 bits, in the passes of both models.
TEST_F(PretendGpuTexts, NeedNoWideLogitsForPreferences) {
  constexpr int64_t kVocabulary = 151936, kPairs = 4, kTime = 1024, kLogits = 2 * kPairs * kTime * kVocabulary * 2;
  const std::string of_dpo = job("dpo", 6);
  write_tokenizer(kVocabulary);
  std::ofstream lines(folder_ / "texts.jsonl");
  const std::string answer = text_of(kTime - 24);
  for (int i = 0; i < kPairs * 6; ++i)
    lines << json{{"prompt", text_of(kTime - std::ssize(answer))}, {"chosen", answer}, {"rejected", answer}}.dump()
          << "\n";
  lines.close();
  train(of_dpo, {"train.global_batch_size=4", "data.text.max_length=1024", "model.config.block_size=1024"});
  const auto peak = json::parse(read_file(folder_ / "run/summary.json"))["peak_memory_bytes"].get<int64_t>();
  EXPECT_LT(peak, kLogits);
  EXPECT_GT(peak, kLogits / 2) << "it did not train";
}

/// The most rows of an operator's first tensor among the choices of kernels.
int64_t most_rows_of(const std::string& name, const std::string& choices) {
  int64_t most = 0;
  std::istringstream lines(choices);
  for (std::string line; std::getline(lines, line);) {
    const std::string tried = json::parse(line)["operator"];
    static const std::regex sizes("^[^ ]+ [0-9]+ [A-Za-z0-9]+ ([0-9]+)x.*");
    std::smatch found;
    if (tried.starts_with(name) && std::regex_match(tried, found, sizes))
      most = std::max(most, int64_t{std::stoll(found[1])});
  }
  return most;
}

/// 15 % of the tokens are targets of masks. The host knows how many, so no step waits for the GPU to tell it.
TEST_F(PretendGpuTexts, GiveTheLastLayerRowsThatCountWithoutWaiting) {
  constexpr int64_t kTime = 256, kBatch = 8;
  const std::string masked = job("masked_language_model", 12);
  std::ofstream lines(folder_ / "texts.jsonl");
  for (int i = 0; i < kTexts; ++i) lines << json{{"text", text_of(kTime)}}.dump() << "\n";
  lines.close();
  const auto waits_of = [&](int steps) {
    std::filesystem::remove_all(folder_.path() / "run");
    train(masked, {"train.max_steps=" + std::to_string(steps)});
    EXPECT_EQ(count("launched graphs"), steps - 3);
    return waits();
  };
  waits_of(12);  // the first run selects the kernels
  EXPECT_EQ(waits_of(40), waits_of(12));
  const int64_t rows = most_rows_of("cross_entropy", read_file(folder_ / "kernel_choices.jsonl"));
  EXPECT_GT(rows, kBatch * kTime * 15 / 100);
  EXPECT_LE(rows, kBatch * kTime / 4);
}

/// Heads of 32 channels have a graph of cuDNN. Plans: each way on the copies that are compared, and if it wins, in
/// place.
TEST_F(PretendGpuTexts, NeedFewPlansOfAttention) {
  train(job("conversations", 60), {"data.text.packing=true", "model.config.head_dim=32"});
  EXPECT_EQ(count("launched graphs"), 60 - 3);
  const std::string choices = read_file(folder_ / "kernel_choices.jsonl");
  EXPECT_THAT(choices, testing::HasSubstr("causal attention window 0"));
  int plans = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_.path() / "cudnn_plans")) {
    std::string line;
    std::getline(std::ifstream(file.path()) >> std::ws, line);
    if (line.find("texts") != std::string::npos) ++plans;
  }
  EXPECT_GE(plans, 2);
  EXPECT_LE(plans, 4);
}

TEST_F(PretendGpuTexts, TrainAdaptersInGraphs) {
  train(job("conversations", 12));
  const std::string pretrained = folder_ / "pretrained";
  std::filesystem::rename(folder_.path() / "run", pretrained);
  for (const std::string dropout : {"0", "0.1"}) {
    std::filesystem::remove_all(folder_.path() / "run");
    train(
        job("conversations", 60),
        {"model.pretrained=" + pretrained,
         "model.adapter={type: lora, rank: 8, target_modules: [q_proj, v_proj, down_proj], dropout: " + dropout + "}"});
    EXPECT_GT(count("launched graphs"), 60 / 2);
  }
}

TEST_F(PretendGpu, UpdatesNarrowAveragesWithinGraph) {
  train(gpt(), {"optimizer={type: adamw8bit, lr: 1e-3}"});
  EXPECT_THAT(read_file(folder_ / "kernel_choices.jsonl"), testing::HasSubstr("adamw8bit"));
  EXPECT_EQ(count("launched graphs"), 2 * (12 - 3));
}

}  // namespace
}  // namespace gputrain::testing_support

// Greedy texts equal those of transformers' generate(), for each family of published weights.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/generation/generate.hpp"
#include "gputrain/models/pretrained.hpp"
#include "models/small_job.hpp"
#include "support/python_reference.hpp"

namespace gputrain::models {
namespace {

namespace fs = std::filesystem;

/// The folder's model with its weights.
std::unique_ptr<Model> read_model(const fs::path& folder) {
  const std::string text = "model: {type: gpt}\n";
  std::ifstream config(folder / "config.json");
  const auto published = published_model(nlohmann::json::parse(config), folder / "config.json");
  const auto settings = settings_of(published, load_job(text), "model");
  auto model = build(load_job(text, settings), {.input_shape = {8}, .num_classes = 2});
  const checkpoint::SafetensorsFile file(folder / "model.safetensors");
  load_weights(*model, {.where = folder.string(), .names = file.names(), .tensor = [&](const std::string& name) {
                          return file.tensor(name);
                        }});
  return model;
}

void expect_same_texts(const fs::path& folder) {
  std::ifstream file(folder / "expected.json");
  const auto expected = nlohmann::json::parse(file);
  const auto prompts = expected["prompts"].get<std::vector<std::vector<int64_t>>>();
  const auto tokens = expected["tokens"].get<std::vector<std::vector<int64_t>>>();
  const auto model = read_model(folder);
  const generation::Options options{
      .sampling = {}, .max_new_tokens = std::ssize(tokens.at(0)), .end_tokens = {}, .context = {.length = 256}};
  const auto together = generation::generate(*model, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(together[i].tokens, tokens[i]) << "in a batch, prompt " << i;
    EXPECT_EQ(generation::generate(*model, {prompts[i]}, options)[0].tokens, tokens[i]) << "alone, prompt " << i;
  }
}

/// Runs the reference once.
class GenerationParity : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!gputrain::testing::has_reference("transformers")) return;
    folder = fs::temp_directory_path() / ("gputrain-generation-" + std::to_string(getpid()));
    fs::create_directories(folder);
    ASSERT_TRUE(gputrain::testing::run_reference("parity/generation_reference.py", {folder}));
  }
  static void TearDownTestSuite() {
    if (!folder.empty()) fs::remove_all(folder);
  }
  void SetUp() override { GPUTRAIN_NEED_REFERENCE("transformers"); }

  static inline fs::path folder;
};

TEST_F(GenerationParity, WritesSameTokensAsTransformers) {
  int families = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    expect_same_texts(entry.path());
    ++families;
  }
  EXPECT_EQ(families, 12);
}

TEST_F(GenerationParity, FiltersLogitsAsTransformers) {
  std::ifstream file(folder / "filters.json");
  const auto expected = nlohmann::json::parse(file);
  const auto text = expected["text"].get<std::vector<int64_t>>();
  for (const auto& each : expected["cases"]) {
    const auto& settings = each["settings"];
    auto logits = expected["logits"].get<std::vector<double>>();
    std::vector<double> found(logits.size());
    const generation::Sampling sampling{.repetition_penalty = settings[0],
                                        .temperature = settings[1],
                                        .top_k = settings[2],
                                        .top_p = settings[3],
                                        .min_p = settings[4]};
    for (const auto& candidate : generation::candidates(logits, text, sampling))
      found[static_cast<size_t>(candidate.token)] = candidate.probability;
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], each["probabilities"][i].get<double>(), 1e-12) << settings << " token " << i;
  }
}

}  // namespace
}  // namespace gputrain::models

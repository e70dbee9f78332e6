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

TEST(GenerationParity, WritesSameTokensAsTransformers) {
  GPUTRAIN_NEED_REFERENCE("transformers");
  const fs::path folder = fs::temp_directory_path() / ("gputrain-generation-" + std::to_string(getpid()));
  fs::create_directories(folder);
  ASSERT_TRUE(gputrain::testing::run_reference("parity/generation_reference.py", {folder}));
  int families = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename().string());
    expect_same_texts(entry.path());
    ++families;
  }
  EXPECT_EQ(families, 6);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace gputrain::models

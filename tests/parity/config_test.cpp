// What a config.json leaves out is read as transformers fills it in, in every family.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/models/published.hpp"
#include "support/python_reference.hpp"

namespace gputrain::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The options of a config.json, or what it lacks.
json reading(const json& config) {
  try {
    const PublishedModel model = published_model(config, "config.json");
    return {{"type", model.type}, {"options", model.options}, {"defaults", model.defaults}};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return {{"error", error.what()}};
  }
}

TEST(PublishedConfig, IsFilledInAsInTransformers) {
  GPUTRAIN_NEED_REFERENCE("transformers");
  const fs::path folder = fs::temp_directory_path() / ("gputrain-configs-" + std::to_string(getpid()));
  fs::create_directories(folder);
  ASSERT_TRUE(gputrain::testing::run_reference("parity/config_reference.py", {"make", folder}));
  std::ifstream file(folder / "configs.json");
  const json cases = json::parse(file);
  std::set<std::string> read, refused;  // refused: whole as they are, transformers fails later
  for (const json& one : cases) {
    const std::string family = one["family"], key = one["key"];
    const json lacking = reading(one["lacking"]), filled = reading(one["filled"]);
    if (filled.contains("error")) {
      EXPECT_EQ(lacking, filled) << family << " without " << key;
      refused.insert(family + " " + key);
      continue;
    }
    if (lacking.contains("error")) {
      EXPECT_THAT(lacking["error"].get<std::string>(), ::testing::HasSubstr("'" + key + "' is missing")) << family;
      continue;
    }
    EXPECT_EQ(lacking, filled) << family << " without " << key;
    read.insert(family);
  }
  EXPECT_EQ(read.size(), 17U);
  EXPECT_THAT(refused,
              ::testing::ElementsAre("Llama attention_bias", "Llama mlp_bias", "ModernBert embedding_dropout",
                                     "ModernBert mlp_dropout", "Qwen2 use_sliding_window", "Qwen3 use_sliding_window"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace gputrain::models

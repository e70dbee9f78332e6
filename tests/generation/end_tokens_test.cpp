#include "gputrain/generation/end_tokens.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "support/byte_tokenizer.hpp"

namespace gputrain::generation {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class EndTokens : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("gputrain-end-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const char* name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  fs::path folder_;
};

TEST_F(EndTokens, PrefersGenerationConfig) {
  EXPECT_THAT(end_tokens_of(folder_, nullptr, nullptr), IsEmpty());
  write("config.json", R"({"eos_token_id": 7})");
  EXPECT_THAT(end_tokens_of(folder_, nullptr, nullptr), ElementsAre(7));
  write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_THAT(end_tokens_of(folder_, nullptr, nullptr), ElementsAre(7));
  write("generation_config.json", R"({"eos_token_id": [9, 3, 9]})");
  EXPECT_THAT(end_tokens_of(folder_, nullptr, nullptr), ElementsAre(3, 9));
  write("generation_config.json", R"({"eos_token_id": "</s>"})");
  EXPECT_THROW(end_tokens_of(folder_, nullptr, nullptr), Error);
}

TEST_F(EndTokens, AddsTokenThatTokenizerSpells) {
  write("config.json", R"({"eos_token_id": 1})");
  write("tokenizer.json", R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
      "added_tokens": [{"id": 2, "content": "<end>", "special": true, "normalized": false}]})");
  for (const std::string spelling : {R"("<end>")", R"({"content": "<end>"})"}) {
    write("tokenizer_config.json", R"({"eos_token": )" + spelling + "}");
    const auto tokenizer = tokenizers::read_published(folder_);
    EXPECT_THAT(end_tokens_of(folder_, tokenizer.get(), nullptr), ElementsAre(1, 2));
    EXPECT_THAT(end_tokens_of("", tokenizer.get(), nullptr), ElementsAre(2));
  }
}

TEST_F(EndTokens, AddsWhatEndsATurnInTheTemplate) {
  write("config.json", R"({"eos_token_id": 256})");
  write("tokenizer.json", testing_support::byte_tokenizer({"<text>", "<turn>", "<head>"}).dump());
  const auto tokenizer = tokenizers::read_published(folder_);
  const auto ends = [&](const std::string& behind, const std::string& before = "") {
    const std::string source = before + "{%- for m in messages -%}{{- '<head>' + m.role + '\\n' + m.content -}}{{- '" +
                               behind + "' -}}{%- endfor -%}";
    const chat::ChatTemplate chat_template(chat::Template::parse(source, "test"), nlohmann::ordered_json::object());
    return end_tokens_of(folder_, tokenizer.get(), &chat_template);
  };
  EXPECT_THAT(ends("<turn>\\n"), ElementsAre(256, 257));
  EXPECT_THAT(ends("\\n<turn><text>"), ElementsAre(256, 257));  // the first counts
  EXPECT_THAT(ends("<text>"), ElementsAre(256));
  EXPECT_THAT(ends("\\n"), ElementsAre(256, 258));  // the next turn
  EXPECT_THAT(ends("\\n", "{%- if messages | length > 2 -%}{{- raise_exception('no more') -}}{%- endif -%}"),
              ElementsAre(256));
  EXPECT_THAT(ends("<turn>", "{{- raise_exception('not these') -}}"), ElementsAre(256));
}

TEST_F(EndTokens, OfTokenizerStandBeforeTextWithoutBeginToken) {
  write("tokenizer.json", R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
      "added_tokens": [{"id": 2, "content": "<end>", "special": true, "normalized": false}]})");
  const auto tokenizer = tokenizers::read_published(folder_);
  EXPECT_EQ(first_token_of(folder_, *tokenizer), std::nullopt);
  write("config.json", R"({"eos_token_id": [1]})");
  EXPECT_EQ(first_token_of(folder_, *tokenizer), 1);
  write("config.json", R"({"bos_token_id": 0, "eos_token_id": 1})");
  EXPECT_EQ(first_token_of(folder_, *tokenizer), 0);
  write("tokenizer_config.json", R"({"bos_token": null, "eos_token": "<end>"})");
  EXPECT_EQ(first_token_of(folder_, *tokenizer), 2);
  write("tokenizer_config.json", R"({"bos_token": "b", "eos_token": "<end>"})");
  EXPECT_EQ(first_token_of(folder_, *tokenizer), 1);
}

}  // namespace
}  // namespace gputrain::generation

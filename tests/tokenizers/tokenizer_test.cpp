#include "gputrain/tokenizers/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gputrain/core/error.hpp"

namespace gputrain::tokenizers {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<int64_t>;

std::unique_ptr<Tokenizer> learned(const std::string& kind, const std::string& text) {
  const std::string name = "a.txt";
  return catalog().make(catalog().with_defaults(kind), {{&text, 1}, {&name, 1}});
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return {};
}

/// One token for each word of the training data, numbered in order of first use.
class Words final : public Tokenizer {
 public:
  Words(const config::NoOptions&, const TokenizerRequest& request) {
    for (const std::string& text : request.texts)
      each_word(text, [&](const std::string& word) {
        if (std::ranges::find(words_, word) == words_.end()) words_.push_back(word);
      });
  }
  int64_t vocabulary_size() const override { return std::ssize(words_); }
  void tokenize(std::string_view text, const std::string&, const Take& take, std::vector<ByteRange>*) const override {
    each_word(text, [&](const std::string& word) {
      const int64_t token = std::ranges::find(words_, word) - words_.begin();
      take({&token, 1});
    });
  }
  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens) text += (text.empty() ? "" : " ") + words_.at(static_cast<size_t>(token));
    return text;
  }

 private:
  static void each_word(std::string_view text, const std::function<void(const std::string&)>& take) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find(' ', begin), text.size());
      take(std::string(text.substr(begin, end - begin)));
      begin = end + 1;
    }
  }
  std::vector<std::string> words_;
};
const config::Registered<Words, config::NoOptions> registered_words{catalog(), "spaced_words", "for this test"};

TEST(Tokenizers, IncludeOneThatAFileRegisters) {
  const auto words = learned("spaced_words", "to be or not to be");
  EXPECT_THAT(words->encode("be not", "f"), ElementsAre(1, 3));
  EXPECT_EQ(words->decode(Tokens{0, 1}), "to be");
  EXPECT_THAT(words->token_texts(), ElementsAre("to", "be", "or", "not"));
  std::map<std::string, std::string> metadata;
  words->save(metadata);
  EXPECT_EQ(metadata.at("targets"), R"(["to","be","or","not"])");
}

TEST(Tokenizers, NumberCharactersInOrderOfTheirCodePoints) {
  const auto characters = learned("characters", "hé 日a😀");
  EXPECT_EQ(characters->vocabulary_size(), 6);
  EXPECT_THAT(characters->encode("a é", "f"), ElementsAre(1, 0, 3));
  EXPECT_EQ(characters->decode(Tokens{3, 5, 6, -1}), "é😀\uFFFD\uFFFD");
  EXPECT_THAT(refusal([&] { characters->encode("a\n ab", "f"); }), HasSubstr("f:1:2"));
  EXPECT_THAT(refusal([&] { characters->encode("ab", "f"); }), HasSubstr("'b' (U+0062) is not in the training data"));
  EXPECT_THAT(refusal([&] { characters->encode("h\xff", "f"); }), HasSubstr("f:1:2"));
  EXPECT_THAT(refusal([] { learned("characters", "ab\n\xc3"); }), HasSubstr("a.txt:2:1"));
}

TEST(Tokenizers, GiveAnyBytesBack) {
  const auto bytes = learned("bytes", "");
  std::string text(10000, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  EXPECT_EQ(bytes->vocabulary_size(), 256);
  EXPECT_EQ(bytes->decode(bytes->encode(text, "f")), text);
  EXPECT_EQ(bytes->decode(Tokens{256}), "\uFFFD");
  size_t most = 0;
  bytes->encode(text, "f", [&](std::span<const int64_t> tokens) { most = std::max(most, tokens.size()); });
  EXPECT_LT(most, text.size()) << "all of them at once";
}

}  // namespace
}  // namespace gputrain::tokenizers

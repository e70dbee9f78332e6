#include "gputrain/generation/text_stream.hpp"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::generation {
namespace {

using testing::ElementsAre;

/// As the tokenizer of Llama 2 it writes spaces before words, but none at the begin of a text.
class Words final : public tokenizers::Tokenizer {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {}
  int64_t vocabulary_size() const override { return std::ssize(words_); }
  void tokenize(std::string_view, const std::string&, const Take&, std::vector<tokenizers::ByteRange>*) const override {
  }
  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens) text += words_.at(static_cast<size_t>(token));
    return text.starts_with(' ') ? text.substr(1) : text;
  }

 private:
  std::vector<std::string> words_;
};

std::shared_ptr<tokenizers::Tokenizer> bytes() {
  static const std::vector<std::string> none;
  return tokenizers::catalog().make(tokenizers::catalog().with_defaults("bytes"),
                                    tokenizers::TokenizerRequest{.texts = none, .names = none});
}

std::vector<std::string> pieces(TextStream& stream, const std::vector<int64_t>& tokens) {
  std::vector<std::string> told;
  for (const int64_t token : tokens) told.push_back(stream.add(token));
  told.push_back(stream.finish());
  return told;
}

TEST(TextStream, HoldsBackUnfinishedCharacters) {
  const auto tokenizer = bytes();
  const std::string text = "aé€😀b";
  TextStream stream(*tokenizer, tokenizer->encode("x", ""));
  EXPECT_THAT(pieces(stream, tokenizer->encode(text, "")),
              ElementsAre("a", "", "é", "", "", "€", "", "", "", "😀", "b", ""));
}

TEST(TextStream, ReplacesWhatIsNoCharacter) {
  const auto tokenizer = bytes();
  TextStream cut(*tokenizer, tokenizer->encode("x", ""));
  EXPECT_THAT(pieces(cut, {0xE2, 0x82}), ElementsAre("", "", "\uFFFD"));
  TextStream broken(*tokenizer, tokenizer->encode("x", ""));
  EXPECT_THAT(pieces(broken, {0xE2, 'a', 0x80, 0xFF, 'b'}), ElementsAre("", "\uFFFDa", "\uFFFD", "\uFFFD", "b", ""));
}

TEST(TextStream, WritesSpacesAsWithinText) {
  const Words words({"<s>", " one", " two", "!", "\uFFFD"});
  TextStream stream(words, std::vector<int64_t>{0, 1});
  EXPECT_THAT(pieces(stream, {2, 3, 1}), ElementsAre(" two", "!", " one", ""));
  const auto is_hidden = [](int64_t token) { return token == 0; };
  TextStream first(words, std::vector<int64_t>{0}, is_hidden);
  EXPECT_THAT(pieces(first, {1, 0, 2}), ElementsAre("one", "", " two", ""));
}

TEST(TextStream, TellsLongRunsWithoutCharacters) {
  const Words words({"a", "\uFFFD"});
  TextStream stream(words, std::vector<int64_t>{0});
  const std::vector<int64_t> broken(20, 1);
  std::string told;
  for (const int64_t token : broken) told += stream.add(token);
  EXPECT_GE(told.size(), 10 * 3U);
  EXPECT_EQ((told + stream.finish()).size(), 20 * 3U);
}

TEST(TextStream, TellsLongTextWhole) {
  const auto tokenizer = bytes();
  std::string text;
  for (int i = 0; i < 200; ++i) text += "ab é 漢😀\n";
  TextStream stream(*tokenizer, tokenizer->encode("€", ""));
  std::string told;
  for (const std::string& piece : pieces(stream, tokenizer->encode(text, ""))) told += piece;
  EXPECT_EQ(told, text);
}

TEST(TextStream, EndsBeforeTheFirstStop) {
  const auto tokenizer = bytes();
  const auto told = [&](const std::string& text, const std::vector<std::string>& stops) {
    TextStream stream(*tokenizer, {}, {}, stops);
    return pieces(stream, tokenizer->encode(text, "text"));
  };
  EXPECT_THAT(told("a\n\nb", {"\n\n"}), ElementsAre("a", "", "", "", ""));
  EXPECT_THAT(told("a\nb", {"\n\n"}), ElementsAre("a", "", "\nb", ""));  // it was no stop
  EXPECT_THAT(told("a\n", {"\n\n"}), ElementsAre("a", "", "\n"));        // nor at the end
  EXPECT_THAT(told("ababc", {"abc", "x"}), ElementsAre("", "", "ab", "", "", ""));
  EXPECT_THAT(told("aé!", {"é"}), ElementsAre("a", "", "", "", ""));
}

}  // namespace
}  // namespace gputrain::generation

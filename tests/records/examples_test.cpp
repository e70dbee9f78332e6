#include "../../src/records/tokens/examples.hpp"

#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/tokenizers/published.hpp"

namespace gputrain::records {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<std::string>;

constexpr int64_t kBegin = 0, kEnd = 1;

/// A tokenizer that has both special tokens; spaces beside the second are its own.
std::shared_ptr<const tokenizers::PublishedTokenizer> made_of(json document) {
  for (const int64_t token : {kBegin, kEnd})
    document["added_tokens"].push_back({{"content", token == kBegin ? "<s>" : "</s>"},
                                        {"id", token},
                                        {"special", true},
                                        {"normalized", false},
                                        {"rstrip", token == kEnd}});
  const fs::path path = fs::path(::testing::TempDir()) / "examples_tokenizer.json";
  std::ofstream(path) << document.dump();
  return tokenizers::read_published(path);
}

Words pieces() {
  Words pieces{"<s>", "</s>", "<unk>"};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(byte));
    pieces.emplace_back(name);
  }
  pieces.emplace_back("\u2581");
  for (char letter = 'a'; letter <= 'z'; ++letter) pieces.emplace_back(1, letter);
  for (const char* more : {"in", "\u2581t", "on", "\u65E5"}) pieces.emplace_back(more);
  return pieces;
}

/// Makes a tokenizer like Llama 2's: a space before each text, bytes of what it does not know.
json byte_fallback() {
  json document = json::parse(R"({
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
              "merges": ["i n", "\u2581 t", "o n"]}})");
  for (int64_t next = 0; const std::string& piece : pieces()) document["model"]["vocab"][piece] = next++;
  return document;
}

/// Makes a tokenizer like T5's: compatible characters are one, and so are spaces.
json unigram() {
  json document = json::parse(R"({
    "normalizer": {"type": "NFKC"}, "pre_tokenizer": {"type": "Metaspace"},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace"}]},
    "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": true, "vocab": []}})");
  for (const std::string& piece : pieces())
    document["model"]["vocab"].push_back({piece, -3.0 / static_cast<double>(piece.size())});
  return document;
}

/// Makes a tokenizer like Qwen's: composed, then bytes.
json byte_level() {
  json document = json::parse(R"({
    "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "merges": ["i n", "\u0120 t", "o n"]}})");
  json& vocab = document["model"]["vocab"] = {{"<s>", kBegin}, {"</s>", kEnd}};
  int64_t next = 2, hidden = 256;
  for (int64_t byte = 0; byte < 256; ++byte) {
    const bool is_visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const int64_t point = is_visible ? byte : hidden++;
    std::string text;
    if (point >= 0x80) text += static_cast<char>(0xC0 | point >> 6);
    text += static_cast<char>(point < 0x80 ? point : 0x80 | (point & 0x3F));
    vocab[text] = next++;
  }
  for (const char* merged : {"in", "\u0120t", "on"}) vocab[merged] = next++;
  return document;
}

/// A text in which answers and their ends are learned.
struct RandomDialogue {
  LearnedText text{.text = "<s>", .learned = {}, .is_plain = false};
  Words answers;

  void add(const std::string& prompt, const std::string& answer) {
    text.text += prompt;
    const size_t begin = text.text.size();
    text.text += answer + "</s>";
    text.learned.push_back({begin, text.text.size()});
    answers.push_back(answer);
  }
};

class LearnedTokens : public ::testing::TestWithParam<json (*)()> {
 protected:
  std::string drawn(const Words& from, size_t most) {
    std::string text;
    for (size_t left = random_() % (most + 1); left > 0; --left) text += from[random_() % from.size()];
    return text;
  }

  std::mt19937 random_{7};
};

/// Texts of the learned tokens up to each end token, without spaces at their begins.
Words learned_in(const Example& example, const tokenizers::Tokenizer& tokenizer) {
  Words texts;
  std::vector<int64_t> tokens;
  for (size_t i = 0; i < example.tokens.size(); ++i) {
    if (!example.learned[i]) continue;
    if (example.tokens[i] != kEnd) {
      tokens.push_back(example.tokens[i]);
      continue;
    }
    const std::string text = tokenizer.decode(std::exchange(tokens, {}));
    texts.push_back(text.substr(std::min(text.find_first_not_of(' '), text.size())));
  }
  if (!tokens.empty()) texts.push_back("without an end: " + tokenizer.decode(tokens));
  return texts;
}

TEST_P(LearnedTokens, AreAnswersAndTheirEndsAndNothingElse) {
  const auto tokenizer = made_of(GetParam()());
  const Words any{"in",     " ",      "  ",     "ton",          "\U0001F600", "\u00E9", "e\u0301", "\uFB01",
                  "\u33C4", "\u65E5", "\u3000", "\u0E01\u0E33", "<0x41>",     "\u2460", "\n",      "\u1100\u1161"};
  const Words border{"\U0001F600", "\u00E9", "e\u0301", "\uFB03", "\u65E5", ": ", "\u2460"};
  const Words stable{"in", " t", "on", "\U0001F600", "\u00E9", "\u65E5", "x y"};  // the same in each normal form
  for (int i = 0; i < 300; ++i) {
    RandomDialogue dialogue;
    for (size_t turns = 1 + random_() % 3; turns > 0; --turns) {
      const std::string prompt = random_() % 8 == 0 ? "" : drawn(any, 12) + border[random_() % border.size()];
      dialogue.add(prompt, "q" + drawn(stable, 8));
    }
    const Example example = example_of(dialogue.text, *tokenizer, "");
    ASSERT_EQ(learned_in(example, *tokenizer), dialogue.answers) << i << ": " << dialogue.text.text;
  }
}

INSTANTIATE_TEST_SUITE_P(, LearnedTokens, ::testing::Values(byte_fallback, unigram, byte_level));

}  // namespace
}  // namespace gputrain::records

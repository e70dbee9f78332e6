// Files of tokenizers that are made to do harm: refused, and nothing is read or written beside its place.
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/base64.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/tokenizers/published.hpp"

namespace gputrain::tokenizers {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

/// Rules of normalisation, as SentencePiece compiles them, that replace the letter "a".
std::string rules_for_a(std::string_view replacement) {
  std::array<uint32_t, 0x62> trie{};
  trie[0] = 1 << 10;                       // its children are at 1 ^ letter
  trie['a' ^ 1] = 'a' | 1 << 8 | 1 << 10;  // a text ends here; its place is at this ^ 1
  trie['a'] = 0x80000000;                  // that place, 0
  const uint32_t bytes = sizeof(trie);
  std::string blob(sizeof(bytes) + bytes, '\0');
  std::memcpy(blob.data(), &bytes, sizeof(bytes));
  std::memcpy(blob.data() + sizeof(bytes), trie.data(), bytes);
  return blob.append(replacement).append(1, '\0');
}

std::string field(char number_and_type, std::string_view bytes) {
  std::string text(1, number_and_type);
  for (size_t left = bytes.size(); left >= 0x80; left >>= 7) text += static_cast<char>(0x80 | (left & 0x7F));
  size_t last = bytes.size();
  while (last >= 0x80) last >>= 7;
  return text.append(1, static_cast<char>(last)).append(bytes);
}

/// A SentencePiece model of <unk>, a mark of spaces and "b", of this kind: 1 for Unigram, 2 for BPE.
std::string sentence_piece(char kind, const std::string& rules) {
  std::string model = field('\x0A', field('\x0A', "<unk>") + "\x18\x02");
  for (const char* piece : {"\u2581", "b"}) model += field('\x0A', field('\x0A', piece));
  return model + field('\x12', std::string{'\x18', kind}) + field('\x1A', field('\x12', rules));
}

json unigram() {
  return {{"model",
           {{"type", "Unigram"},
            {"unk_id", 0},
            {"vocab", json::array({json::array({"<unk>", 0}), json::array({"b", -1})})}}}};
}
json bpe() {
  return {{"model", {{"type", "BPE"}, {"unk_token", "b"}, {"vocab", {{"b", 0}}}, {"merges", json::array()}}}};
}

class HostileFiles : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& content) const {
    const fs::path path = fs::path(::testing::TempDir()) / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  /// The message with which the file, or a text, is refused.
  std::string refusal(const fs::path& path) const {
    try {
      const auto tokenizer = read_published(path);
      const auto tokens = tokenizer->encode("ba a b aaa", "a text");
      return "read, as: " + tokenizer->decode(tokens);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_THAT(error.parts().where, HasSubstr(path.filename().string()));
      return error.parts().what;
    }
  }
  std::string refusal(const json& document) const { return refusal(write("tokenizer.json", document.dump())); }
};

TEST_F(HostileFiles, RulesThatMakeBrokenTextAreRefused) {
  for (const char* broken : {"\xF0", "\xC3", "b\x80", "\xED\xA0\x80"}) {
    for (const char kind : {'\1', '\2'})
      EXPECT_THAT(refusal(write("x.model", sentence_piece(kind, rules_for_a(broken)))), HasSubstr("not UTF-8"));
    for (json document : {unigram(), bpe()}) {
      document["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(rules_for_a(broken))}};
      EXPECT_THAT(refusal(document), HasSubstr("not UTF-8"));
      document["normalizer"] = {{"type", "Sequence"},
                                {"normalizers", json::array({document["normalizer"], {{"type", "NFKC"}}})}};
      EXPECT_THAT(refusal(document), HasSubstr("not UTF-8"));
    }
  }
  EXPECT_THAT(refusal(write("x.model", sentence_piece(1, rules_for_a("\u00E9")))), HasSubstr("read, as"));
}

TEST_F(HostileFiles, PatternsThatCutCharactersApartAreRefused) {
  for (const char* pattern : {R"(\C)", R"(b\C+)", R"([\C])", R"((?=ab(?1))|(\K){0})"}) {
    json document = unigram();
    document["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    EXPECT_THAT(refusal(document), HasSubstr("regular expression")) << pattern;
    document["pre_tokenizer"] = nullptr;
    document["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", "x"}};
    EXPECT_THAT(refusal(document), HasSubstr("regular expression")) << pattern;
  }
}

TEST_F(HostileFiles, EmptyTextsToFindAreRefused) {
  json document = unigram();
  document["decoder"] = {{"type", "Metaspace"}, {"replacement", ""}, {"prepend_scheme", "never"}};
  EXPECT_THAT(refusal(document), HasSubstr("'replacement' is empty"));
  document["decoder"] = {
      {"type", "Strip"}, {"content", ""}, {"start", int64_t{9'000'000'000'000'000'000}}, {"stop", 0}};
  EXPECT_THAT(refusal(document), HasSubstr("'content' is empty"));
  document["decoder"] = {{"type", "Sequence"}, {"decoders", json::array({document["decoder"]})}};
  EXPECT_THAT(refusal(document), HasSubstr("'content' is empty"));
}

TEST_F(HostileFiles, NumbersBeyondAnyTokenizerAreRefused) {
  json document = {{"model",
                    {{"type", "WordPiece"},
                     {"unk_token", "b"},
                     {"vocab", {{"b", 0}}},
                     {"max_input_chars_per_word", int64_t{1} << 62}}}};
  EXPECT_THAT(refusal(document), HasSubstr("max_input_chars_per_word"));
  document = {{"config", {{"default_num_special_tokens", 1}, {"default_vocab_size", INT64_MIN}, {"pattern", "."}}},
              {"vocab", json::array()}};
  EXPECT_THAT(refusal(write("tekken.json", document.dump())), HasSubstr("not the numbers of tokens"));
}

}  // namespace
}  // namespace gputrain::tokenizers

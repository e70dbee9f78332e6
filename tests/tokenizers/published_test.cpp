#include "gputrain/tokenizers/published.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "support/python_reference.hpp"

namespace gputrain::tokenizers {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<int64_t>;

class Published : public ::testing::Test {
 protected:
  Published() : folder_(fs::path(::testing::TempDir()) / "published") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Published() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  std::shared_ptr<const PublishedTokenizer> made_of(const json& document) const {
    return read_published(write("tokenizer.json", document.dump()));
  }
  /// The message of what reading throws, and its place.
  static std::string refusal_of(const fs::path& path) {
    try {
      read_published(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_THAT(error.parts().where, HasSubstr("published"));
      return error.parts().what + " at " + error.parts().where;
    }
    return "read";
  }
  std::string refusal(const json& document) const { return refusal_of(write("tokenizer.json", document.dump())); }

  fs::path folder_;
};

/// a, b, c, ab, bc, abc: numbers 0 to 5.
json small_bpe(const std::vector<std::string>& merges) {
  json document = {{"model", {{"type", "BPE"}, {"merges", merges}}}};
  int64_t next = 0;
  for (const char* text : {"a", "b", "c", "ab", "bc", "abc"}) document["model"]["vocab"][text] = next++;
  return document;
}

/// Tokens and types of two texts in their frame.
std::pair<Tokens, Tokens> paired(const Tokenizer& tokenizer, const Tokens& first, const Tokens& second) {
  const Frame frame = tokenizer.frame(true);
  Tokens tokens;
  for (const Tokens* part : {&frame.before, &first, &frame.between, &second, &frame.behind})
    tokens.insert(tokens.end(), part->begin(), part->end());
  Tokens types(tokens.size(), 0);
  std::fill_n(types.rbegin(), second.size() + frame.behind.size(), frame.second_type);
  return {tokens, types};
}

/// Where the reference has other rules: it takes spaces off some, what is inserted has the range of a neighbour, and of
/// characters that become one only the first counts, or of a replaced text the last.
const std::set<std::string> kOtherRanges{"gpt2",
                                         "roberta",
                                         "llama3",
                                         "unigram",
                                         "unigram_bytes",
                                         "llama2",
                                         "llama2_old",
                                         "metaspace_first",
                                         "normalizer_prepend",
                                         "normalizer_bert_accents",
                                         "normalizer_nfc",
                                         "normalizer_nfd",
                                         "normalizer_nfkc",
                                         "normalizer_nfkd",
                                         "normalizer_accents",
                                         "qwen2",
                                         "normalizer_replace",
                                         "bert_uncased",
                                         "bert_vocabulary"};

/// The reference counts characters.
ByteRange whole_characters(std::string_view text, ByteRange range) {
  const auto is_inside = [&](size_t at) { return at > 0 && at < text.size() && (text[at] & 0xC0) == 0x80; };
  while (range.begin < range.end && is_inside(range.begin)) --range.begin;
  while (is_inside(range.end)) ++range.end;
  return range;
}

/// `is_loose`: they touch, or the reference has taken all of it off as white space, or gives what is inserted the range
/// of a neighbour.
void expect_range(std::string_view text, ByteRange range, const json& expected, bool is_loose) {
  const ByteRange theirs{expected[0], expected[1]};
  if (is_loose) {
    const size_t begin = std::min(range.end, theirs.end), end = std::max(range.begin, theirs.begin);
    EXPECT_TRUE(begin >= end || theirs.begin == theirs.end || range.begin == range.end)
        << "[" << range.begin << ", " << range.end << "), theirs [" << theirs.begin << ", " << theirs.end << ") of "
        << ::testing::PrintToString(text);
  } else {
    EXPECT_THAT(std::pair(range.begin, range.end), ::testing::Pair(theirs.begin, theirs.end));
  }
}

TEST_F(Published, GivesTheTokensAndRangesOfTheReference) {
  for (const char* package : {"tokenizers", "tiktoken", "sentencepiece"}) GPUTRAIN_NEED_REFERENCE(package);
  ASSERT_TRUE(gputrain::testing::run_reference("tokenizers/published_reference.py", {folder_.string()}));
  const auto read = [](const fs::path& path) {
    std::ifstream file(path);
    return json::parse(file);
  };
  const json texts = read(folder_ / "texts.json");
  int tokenizers = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() != ".expected") continue;
    SCOPED_TRACE(entry.path().stem());
    const json expected = read(entry.path());
    const auto tokenizer = read_published(fs::path(entry.path()).replace_extension());
    Tokens before = tokenizer->encode(texts.back().get<std::string>(), "text");
    for (size_t i = 0; i < texts.size() && !HasFailure(); ++i) {
      const auto text = texts[i].get<std::string>();
      const Tokens tokens = tokenizer->encode(text, "text");
      if (expected[i].contains("pair")) {
        const auto [pair, types] = paired(*tokenizer, before, tokens);
        EXPECT_EQ(pair, expected[i]["pair"].get<Tokens>());
        EXPECT_EQ(types, expected[i]["types"].get<Tokens>());
      }
      before = tokens;
      EXPECT_EQ(tokens, expected[i]["tokens"].get<Tokens>()) << texts[i].dump(-1, ' ', true);
      EXPECT_EQ(tokenizer->encode_whole(text, "text"), expected[i]["framed"].get<Tokens>());
      if (expected[i].contains("ranges")) {
        const TracedTokens traced = tokenizer->encode_traced(text, "text");
        ASSERT_EQ(traced.tokens, tokens);
        for (size_t t = 0; t < tokens.size() && !HasFailure(); ++t)
          expect_range(text, whole_characters(text, traced.ranges[t]), expected[i]["ranges"][t],
                       tokenizer->is_special(tokens[t]) || kOtherRanges.contains(entry.path().stem()));
      }
      if (!expected[i]["text"].is_null()) {
        EXPECT_EQ(tokenizer->decode(tokens), expected[i]["text"].get<std::string>());
      }
    }
    ++tokenizers;
  }
  EXPECT_GT(tokenizers, 50);
}

TEST_F(Published, NamesTheBytesThatTokensStandFor) {
  json document = small_bpe({"a b"});
  document["model"]["vocab"]["\u2581"] = 6;
  document["model"]["vocab"]["\u00E9"] = 7;
  document["added_tokens"] = {
      {{"content", "<m>"}, {"id", 8}, {"special", true}, {"lstrip", true}, {"rstrip", true}, {"normalized", false}}};
  document["normalizer"] = {{"type", "Sequence"},
                            {"normalizers",
                             {{{"type", "NFKC"}},
                              {{"type", "Prepend"}, {"prepend", "\u2581"}},
                              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}};
  const TracedTokens traced = made_of(document)->encode_traced("ab e\u0301 <m>  \u33C4c", "");  // ㏄ becomes "cc"
  EXPECT_THAT(traced.tokens, ElementsAre(6, 3, 6, 7, 8, 6, 2, 2, 2));
  const std::vector<ByteRange> ranges{{0, 0}, {0, 2}, {2, 3}, {3, 6}, {7, 10}, {12, 12}, {12, 15}, {12, 15}, {15, 16}};
  EXPECT_EQ(traced.ranges, ranges);
}

TEST_F(Published, MergesInTheOrderOfTheFile) {
  EXPECT_THAT(made_of(small_bpe({"a b", "b c", "ab c"}))->encode("abcbc", ""), ElementsAre(5, 4));
  EXPECT_THAT(made_of(small_bpe({"b c", "a b"}))->encode("abc", ""), ElementsAre(0, 4));
  EXPECT_THAT(made_of(small_bpe({"b c", "a b", "a bc"}))->encode("abcab", ""), ElementsAre(5, 3));
}

TEST_F(Published, MergesALongWordInShortTime) {
  std::string text;
  for (int i = 0; i < 700'000; ++i) text += "ab"[i % 2];
  const Tokens tokens = made_of(small_bpe({"a b"}))->encode(text, "");
  EXPECT_EQ(tokens, Tokens(350'000, 3));
}

TEST_F(Published, FindsTheLongestAddedTokenFirst) {
  json document = small_bpe({});
  for (const auto& [text, token] : {std::pair{"abc", 5}, {"<x>", 6}, {"<x><y>", 7}})
    document["added_tokens"].push_back({{"content", text}, {"id", token}, {"special", token > 5}});
  const auto tokenizer = made_of(document);
  EXPECT_THAT(tokenizer->encode("a<x><y>b<x>abc", ""), ElementsAre(0, 7, 1, 6, 5));
  EXPECT_EQ(tokenizer->vocabulary_size(), 8);
  EXPECT_EQ(tokenizer->find("<x>"), 6);
  EXPECT_EQ(tokenizer->find("ab"), 3);
  EXPECT_EQ(tokenizer->find("<z>"), std::nullopt);
  EXPECT_TRUE(tokenizer->is_special(7));
  EXPECT_FALSE(tokenizer->is_special(5));
}

TEST_F(Published, RefusesTextWithoutTokens) {
  const auto tokenizer = made_of(small_bpe({}));
  EXPECT_THROW(tokenizer->encode("abx", "a.txt"), Error);
  EXPECT_THROW(tokenizer->encode("ab\xFF", "a.txt"), Error);
}

TEST_F(Published, ShowsTokensOutsideAsReplacements) {
  json document = small_bpe({});
  document["decoder"] = {{"type", "Fuse"}};
  EXPECT_EQ(made_of(document)->decode(Tokens{0, 6, -1, 1}), "a\uFFFD\uFFFDb");
}

TEST_F(Published, EncodesInSeveralThreadsAtOnce) {
  const auto tokenizer = made_of(small_bpe({"a b", "ab c"}));
  std::vector<std::thread> threads;
  std::vector<Tokens> results(4);
  for (Tokens& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) result = tokenizer->encode("abcabca", "");
    });
  for (std::thread& thread : threads) thread.join();
  for (const Tokens& result : results) EXPECT_THAT(result, ElementsAre(5, 5, 0));
}

TEST_F(Published, NamesWhatItDoesNotSupport) {
  for (const char* key : {"normalizer", "pre_tokenizer", "decoder", "post_processor"}) {
    json document = small_bpe({});
    document[key] = {{"type", "Strange"}};
    EXPECT_THAT(refusal(document), AllOf(HasSubstr("'Strange'"), HasSubstr(key)));
  }
  EXPECT_THAT(refusal({{"model", {{"type", "Strange"}}}}), HasSubstr("'Strange'"));
  json document = small_bpe({});
  document["model"]["dropout"] = 0.1;
  EXPECT_THAT(refusal(document), HasSubstr("model.dropout"));
}

TEST_F(Published, RefusesWrongVocabularies) {
  json document = small_bpe({});
  document["model"]["vocab"]["x"] = 5;
  EXPECT_THAT(refusal(document), HasSubstr("has the number 5, as"));
  for (const json& wrong : {json(-1), json(1 << 24), json(UINT64_MAX)}) {
    document["model"]["vocab"]["x"] = wrong;
    EXPECT_THAT(refusal(document), HasSubstr("numbers are from 0 to"));
  }
  document["model"]["vocab"]["x"] = "6";
  EXPECT_THAT(refusal(document), HasSubstr("no whole number"));
}

TEST_F(Published, RefusesWrongMerges) {
  EXPECT_THAT(refusal(small_bpe({"a x"})), HasSubstr("needs the token 'x'"));
  EXPECT_THAT(refusal(small_bpe({"a c"})), HasSubstr("needs the token 'ac'"));
  EXPECT_THAT(refusal(small_bpe({"a b", "a b"})), HasSubstr("merged twice at"));
  EXPECT_THAT(refusal(small_bpe({"a b", "abc"})), HasSubstr("model.merges[1]"));
}

TEST_F(Published, RefusesWrongAddedTokens) {
  json document = small_bpe({});
  document["added_tokens"] = {{{"content", "ab"}, {"id", 9}}};
  EXPECT_THAT(refusal(document), HasSubstr("but 3 in the model's vocabulary"));
  document["added_tokens"] = {{{"content", "x"}, {"id", 3}}};
  EXPECT_THAT(refusal(document), HasSubstr("in the model's vocabulary"));
  document["added_tokens"] = {{{"content", "x"}, {"id", 9}}, {{"content", "y"}, {"id", 9}}};
  EXPECT_THAT(refusal(document), HasSubstr("as \"x\" has"));
}

TEST_F(Published, RefusesWrongFiles) {
  EXPECT_THAT(refusal(json::array()), HasSubstr("expected an object"));
  EXPECT_THAT(refusal({{"version", "1.0"}}), HasSubstr("'model' is missing"));
  write("tokenizer.json", "version https://git-lfs.github.com/spec/v1");
  EXPECT_THROW(read_published(folder_), Error);
}

TEST_F(Published, RefusesTokensAroundTextThatDoNotExist) {
  json document = small_bpe({});
  document["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"[CLS]", 0}}, {"sep", {"[SEP]", 6}}};
  EXPECT_THAT(refusal(document), HasSubstr("no token 6"));
}

TEST_F(Published, RefusesRanksOfNoKnownModel) {
  EXPECT_THAT(refusal_of(write("x.tiktoken", "YQ== 0\nYg== 1\n")), HasSubstr("2 ranks"));
  EXPECT_THAT(refusal_of(write("x.tiktoken", "YQ== 0\nYg== \n")), HasSubstr("x.tiktoken:2"));
  EXPECT_THAT(refusal_of(write("x.tiktoken", "YQ== 0\nY!== 1\n")), HasSubstr("x.tiktoken:2"));
}

TEST_F(Published, KnowsTheSpecialTokensOfLlama3) {
  std::string ranks;  // "AAAA" and so on, three bytes each
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t rank = 0; rank < 128'000; ++rank) {
    for (const size_t shift : {18u, 12u, 6u, 0u}) ranks += kDigits[rank >> shift & 63];
    ranks += " " + std::to_string(rank) + "\n";
  }
  const auto tokenizer = read_published(write("tokenizer.model", ranks));
  const std::string text = "<|begin_of_text|><|reserved_special_token_0|><|eom_id|><|eot_id|><|python_tag|>";
  EXPECT_THAT(tokenizer->encode(text, ""), ElementsAre(128000, 128002, 128008, 128009, 128010));
}

TEST_F(Published, RefusesVocabulariesWithoutRulesForCutting) {
  write("vocab.json", R"({"a": 0})");
  write("merges.txt", "");
  EXPECT_EQ(read_published(folder_)->vocabulary_size(), 1);
  write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_THAT(refusal_of(folder_), HasSubstr("Qwen2Tokenizer"));
}

TEST_F(Published, WeighsPiecesAtTheEndOfALongText) {
  std::string model;
  const auto add_piece = [&](const std::string& text, float score, char type) {
    std::string fields = "\x0A" + std::string(1, static_cast<char>(text.size())) + text + "\x15";
    fields.append(reinterpret_cast<const char*>(&score), sizeof score).append({'\x18', type});
    model += "\x0A" + std::string(1, static_cast<char>(fields.size())) + fields;
  };
  add_piece("<unk>", 0, 2);
  for (const auto& [text, score] : {std::pair{"\u2581", -1.F}, {"b", -9.9F}, {"c", -1.001F}, {"cc", -2.003F}})
    add_piece(text, score, 1);
  const Tokens tokens = read_published(write("x.model", model))->encode(std::string(10'200, 'b') + "cc", "");
  ASSERT_EQ(tokens.size(), 10'203u);  // the sum is beyond -100,000, where float has no thousandths
  EXPECT_EQ(tokens.back(), 3);
}

TEST_F(Published, RefusesBrokenSentencePieceModels) {
  const std::string piece = "\x0A\x03\x0A\x01";  // one piece, whose text is the next byte
  EXPECT_EQ(read_published(write("x.model", piece + "a"))->encode("", "").size(), 0u);
  EXPECT_THAT(refusal_of(write("x.model", piece)), HasSubstr("cut off"));
  EXPECT_THAT(refusal_of(write("x.model", piece + "a" + piece + "a")), HasSubstr("but also 0"));
}

TEST_F(Published, RefusesLargeFilesUnread) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    fs::resize_file(write(name, "{"), (uintmax_t{256} << 20) + 1);
    EXPECT_THAT(refusal_of(folder_ / name), AllOf(HasSubstr("268,435,457 bytes"), HasSubstr(name)));
  }
}

TEST_F(Published, RefusesLongTokens) {
  const std::string longest(4096, 'a'), longer = longest + "a";
  json document = small_bpe({});
  document["model"]["vocab"][longest] = 6;
  EXPECT_EQ(made_of(document)->find(longest), 6);
  document["added_tokens"] = {{{"content", longer}, {"id", 7}}};
  EXPECT_THAT(refusal(document), AllOf(HasSubstr("token 7 has 4,097 bytes"), HasSubstr("added_tokens")));
  document["model"]["vocab"][longer] = 7;
  EXPECT_THAT(refusal(document), HasSubstr("token 7 has 4,097 bytes"));
  EXPECT_THAT(refusal_of(write("x.tiktoken", std::string(8000, 'Y') + " 0\n")), HasSubstr("token 0 has"));
}

TEST_F(Published, RefusesTooMuchTextInAddedTokens) {
  json document = small_bpe({});
  for (int i = 0; i < 2049; ++i) {
    std::string text = std::to_string(i);
    document["added_tokens"].push_back({{"content", text.append(4096 - text.size(), 'x')}, {"id", 6 + i}});
  }
  EXPECT_THAT(refusal(document), HasSubstr("added tokens have more than 8 MiB"));
}

TEST_F(Published, RefusesDeepNesting) {
  write("tokenizer.json", std::string(201, '['));
  EXPECT_THAT(refusal_of(folder_ / "tokenizer.json"), HasSubstr("more than 200 deep"));
  write("tokenizer.json", R"({"model": ")" + std::string(201, '[') + R"(\"[["})");
  EXPECT_THAT(refusal_of(folder_ / "tokenizer.json"), HasSubstr("expected an object"));
}

TEST_F(Published, ShortensTextsInMessages) {
  const std::string text(100'000, 'x');
  EXPECT_LT(refusal(small_bpe({"a " + text})).size(), 1000u);
  json document = small_bpe({});
  document["normalizer"] = {{"type", text}};
  EXPECT_LT(refusal(document).size(), 1000u);
  document["normalizer"] = nullptr;
  document["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(" + text}}}};
  EXPECT_LT(refusal(document).size(), 2000u);
  write("vocab.txt", text + "\n" + text);
  EXPECT_LT(refusal_of(folder_ / "vocab.txt").size(), 1000u);
}

TEST_F(Published, RefusesFoldersWithoutATokenizer) {
  EXPECT_THAT(refusal_of(folder_), HasSubstr("no tokenizer here"));
  EXPECT_THAT(refusal_of(folder_ / "tokenizer.json"), HasSubstr("cannot read"));
}

TEST_F(Published, RefusesPatternsItCannotTranslate) {
  for (const char* pattern : {"[a[b]]", "[\\W]", "(", "\\h"}) {
    json document = small_bpe({});
    document["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}};
    EXPECT_THAT(refusal(document), HasSubstr("regular expression")) << pattern;
  }
}

}  // namespace
}  // namespace gputrain::tokenizers

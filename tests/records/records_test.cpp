#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/records/samples/packing.hpp"
#include "datasets/opened.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/data/loader.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Packing, FillsRowsWithoutLosingASample) {
  std::mt19937 random(1);
  std::vector<int64_t> lengths(1000);
  std::ranges::generate(lengths, [&] { return static_cast<int64_t>(random() % 100 + 1); });
  const PackedRows rows = pack(lengths, 128);
  std::multiset<int64_t> seen;
  for (int64_t row = 0; row < rows.size(); ++row) {
    int64_t sum = 0;
    for (const int64_t sample : rows.row(row)) {
      seen.insert(sample);
      sum += lengths[static_cast<size_t>(sample)];
    }
    EXPECT_LE(sum, 128);
  }
  std::vector<int64_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_TRUE(std::ranges::equal(seen, all));
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  EXPECT_LE(rows.size(), tokens / 128 * 102 / 100 + 1);  // two percent above what no packing can beat
}

TEST(Packing, PutsASampleIntoTheFullestRow) {
  const PackedRows rows = pack(std::vector<int64_t>{7, 6, 3, 4}, 10);
  EXPECT_THAT(rows.row(0), ElementsAre(0, 2));
  EXPECT_THAT(rows.row(1), ElementsAre(1, 3));
  EXPECT_EQ(rows.size(), 2);
}

class RecordsTest : public FolderTest {
 protected:
  /// Training data as bytes, with more keys of data.text.
  data::DatasetSplits open_bytes(const std::string& file, const std::string& text = "", const std::string& more = "") {
    return open("{train: {path: " + path(file) + ", format: " + file.substr(file.rfind('.') + 1) +
                    "}, text: {tokenizer: bytes" + text + "}" + more + "}",
                64);
  }
};

TEST_F(RecordsTest, LearnsCompletionsAlone) {
  write("a.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n{\"text\": \"xyz\"}\n");
  const auto data = open_bytes("a.jsonl");
  ASSERT_EQ(data.train->size(), 2);
  const RaggedSample first = read_fields(*data.train, 0), second = read_fields(*data.train, 1);
  EXPECT_THAT(first.tokens, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(first.targets, ElementsAre(kIgnoreIndex, 'c', 'd', kIgnoreIndex));
  EXPECT_THAT(second.targets, ElementsAre('y', 'z', kIgnoreIndex));
  const auto all = open_bytes("a.jsonl", ", loss_on: all");
  EXPECT_THAT(read_fields(*all.train, 0).targets, ElementsAre('b', 'c', 'd', kIgnoreIndex));
}

TEST_F(RecordsTest, PacksTextsWithPositionsOfTheirOwn) {
  write("a.csv", "prompt,completion\nab,cd\nx,yz\n");
  const auto data = open_bytes("a.csv", ", packing: true, max_length: 9");
  ASSERT_EQ(data.train->size(), 1);
  const RaggedSample row = read_fields(*data.train, 0);
  EXPECT_THAT(row.tokens, ElementsAre('a', 'b', 'c', 'd', 'x', 'y', 'z', 0, 0));
  EXPECT_THAT(row.targets, ElementsAre(-100, 'c', 'd', -100, 'y', 'z', -100, -100, -100));
  EXPECT_THAT(row.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 0, 1));
  EXPECT_EQ(data.train->layout().texts_in_row, 3) << "with the end of the row";
  EXPECT_EQ(data.train->layout().longest_text, 4);
  EXPECT_THAT(data.train->describe(), HasSubstr("2 texts of 1 file, 7 tokens, 4 learned, packed into 1 row of 9"));
}

/// A part of the data has rows of its own.
TEST_F(RecordsTest, CountsTheTextsOfEachPartsRows) {
  std::string lines = "prompt,completion\n";
  for (int i = 0; i < 60; ++i) lines += std::string(static_cast<size_t>(i % 20 == 0 ? 9 : 1 + i % 3), 'a') + ",b\n";
  write("a.csv", lines);
  const auto data = open_bytes("a.csv", ", packing: true, max_length: 24");
  for (const auto& part :
       {data.train, data.train->part(0, 0.7, data::Split::train), data.train->part(0.7, 1, data::Split::val)}) {
    int64_t most = 0, longest = 0;
    for (int64_t i = 0; i < part->size(); ++i) {
      int64_t texts = 0;
      for (const int64_t position : read_fields(*part, i).positions) {
        texts += position == 0 ? 1 : 0;
        longest = std::max(longest, position + 1);
      }
      most = std::max(most, texts);
    }
    EXPECT_GE(part->layout().texts_in_row, most);
    EXPECT_LE(part->layout().texts_in_row, most + 1) << "a row may be full";
    EXPECT_GE(part->layout().longest_text, longest);
  }
}

/// An evaluation's last batch may have fewer rows: the others hold no targets, but texts that positions tell apart.
TEST_F(RecordsTest, FillsBatchesOfPackedTextsWithTexts) {
  std::string lines = "prompt,completion\n";
  for (int i = 0; i < 3; ++i) lines += "abcd,ef\n";
  write("a.csv", lines);
  const auto opened = open_bytes("a.csv", ", packing: true, max_length: 8");
  ASSERT_EQ(opened.train->size(), 3);
  data::Loader loader(opened.train,
                      {.partition = {.global_batch = 2, .micro_batch = 2}, .shuffle = false, .augment = false});
  loader.next_step();
  const Batch last = loader.next_step().micro_batches[0];
  ASSERT_EQ(last.samples, 1);
  EXPECT_EQ(last.tensor(kPositions)[1].max().item<int64_t>(), 5);
  EXPECT_TRUE(last.tensor(kTarget)[1].eq(kIgnoreIndex).all().item<bool>());
  EXPECT_EQ(last.texts_in_row, 2);
}

/// A tokenizer as Llama 2's: a token for each letter, and a space before whatever follows a special token.
std::string llama2_tokenizer() {
  std::string vocabulary = R"("<unk>": 0, "<s>": 1, "</s>": 2, "\u2581": 3)";
  for (char c = 'a'; c <= 'z'; ++c) vocabulary += std::string(", \"") + c + "\": " + std::to_string(4 + c - 'a');
  vocabulary += R"(, ":": 30)";
  return R"({"added_tokens": [
      {"id": 1, "content": "<s>", "special": true, "normalized": false, "lstrip": false, "rstrip": false, "single_word": false},
      {"id": 2, "content": "</s>", "special": true, "normalized": false, "lstrip": false, "rstrip": false, "single_word": false}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": false, "vocab": {)" +
         vocabulary + R"(}, "merges": []}})";
}

TEST_F(RecordsTest, LearnsAnswersBehindSpecialTokens) {
  write("model/tokenizer.json", llama2_tokenizer());
  write("model/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  write("chat.jinja",
        "{% for m in messages %}{% if m.role == 'user' %}<s>u: {{ m.content }} :{% else %} {{ m.content }}</s>"
        "{% endif %}{% endfor %}");
  std::string turns;
  for (int i = 0; i < 6; ++i)
    turns +=
        std::string(i > 0 ? ", " : "") + R"({"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd"})";
  write("a.jsonl", "{\"messages\": [" + turns + "]}\n");
  const auto data = open("{train: {path: " + path("a.jsonl") +
                             ", format: jsonl}, text: {tokenizer: published, tokenizer_path: " + path("model") +
                             ", chat_template: " + path("chat.jinja") + "}}",
                         256);
  const RaggedSample sample = read_fields(*data.train, 0);
  std::vector<int64_t> learned;
  for (const int64_t target : sample.targets)
    if (target != kIgnoreIndex) learned.push_back(target);
  std::vector<int64_t> expected;  // " cd</s>" of each turn
  for (int i = 0; i < 6; ++i) expected.insert(expected.end(), {3, 4 + 'c' - 'a', 4 + 'd' - 'a', 2});
  EXPECT_EQ(learned, expected);
}

TEST_F(RecordsTest, CutsDocumentsIntoPieces) {
  write("a.jsonl", "{\"text\": \"abcdefg\"}\n{\"prompt\": \"abc\", \"completion\": \"defg\"}\n");
  std::string warning;
  data::DatasetSplits data;
  warning = warning_of([&] { data = open_bytes("a.jsonl", ", max_length: 4"); });
  ASSERT_EQ(data.train->size(), 3);
  EXPECT_THAT(read_fields(*data.train, 1).tokens, ElementsAre('e', 'f', 'g'));
  EXPECT_THAT(read_fields(*data.train, 2).tokens, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(warning, HasSubstr("cut 1 of 3 samples after 4 tokens"));
}

TEST_F(RecordsTest, SplitsTextsBeforePacking) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "{\"text\": \"" + std::string(5, static_cast<char>('0' + i)) + "\"}\n";
  write("a.jsonl", lines);
  const auto data = open_bytes("a.jsonl", ", packing: true, max_length: 20", ", val: {split: 20%}");
  std::multiset<int64_t> seen;
  for (const auto& part : {data.train, data.val}) {
    for (int64_t row = 0; row < part->size(); ++row) {
      const RaggedSample sample = read_fields(*part, row);
      for (size_t i = 0; i < sample.tokens.size(); i += 5) seen.insert(sample.tokens[i]);
    }
  }
  EXPECT_EQ(data.train->size(), 8);
  EXPECT_EQ(data.val->size(), 2);
  EXPECT_EQ(seen.size(), 40U);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 40U);
}

TEST_F(RecordsTest, CountsBadRecords) {
  write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": 1}\n{\"other\": \"x\"}\n{\"text\": \"cd\"}\n");
  EXPECT_THAT(error_of([&] { open_bytes("a.jsonl"); }),
              AllOf(HasSubstr("a.jsonl:2"), HasSubstr("2 records of 4"), HasSubstr("max_bad_fraction")));
  data::DatasetSplits data;
  const std::string warning = warning_of([&] { data = open_bytes("a.jsonl", "", ", max_bad_fraction: 0.5"); });
  EXPECT_THAT(warning, HasSubstr("2 records of 4"));
  EXPECT_EQ(data.train->size(), 4);
  EXPECT_THAT(error_of([&] { read_fields(*data.train, 2); }), AllOf(HasSubstr("no column"), HasSubstr("a.jsonl:3")));
}

TEST_F(RecordsTest, RefusesDataThatTeachesNothing) {
  write("a.jsonl", "{\"prompt\": \"abcdef\", \"completion\": \"g\"}\n");
  EXPECT_THAT(error_of([&] { open_bytes("a.jsonl", ", max_length: 4"); }), HasSubstr("nothing is learned"));
}

}  // namespace
}  // namespace gputrain::records

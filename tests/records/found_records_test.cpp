#include "gputrain/records/found_records.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::records {
namespace {

using Kind = FoundRecords::Kind;

/// What a file of lines that repeat is; the lines differ in @, a number.
std::optional<FoundRecords> found_in(const std::string& line, const std::string& ending = ".jsonl",
                                     const std::string& head = "", int lines = 6) {
  const auto path = std::filesystem::path(::testing::TempDir()) / ("found" + ending);
  std::ofstream file(path);
  file << head;
  for (int i = 0; i < lines; ++i) {
    std::string one = line;
    for (size_t at = 0; (at = one.find('@', at)) != std::string::npos;) one.replace(at, 1, std::to_string(i));
    file << one << "\n";
  }
  file.close();
  return found_records(path.string());
}

Kind kind_of(const std::string& line) {
  const auto found = found_in(line);
  EXPECT_TRUE(found) << line;
  return found ? found->kind : Kind::texts;
}

TEST(FoundRecords, AreWhatTheirColumnsAndValuesSay) {
  EXPECT_EQ(kind_of(R"({"messages": [{"role": "user", "content": "a@"}, {"role": "assistant", "content": "b"}]})"),
            Kind::conversations);
  EXPECT_EQ(kind_of(R"({"conversations": [{"from": "human", "value": "a@"}, {"from": "gpt", "value": "b"}]})"),
            Kind::conversations);
  EXPECT_EQ(kind_of(R"({"instruction": "add @", "input": "", "output": "b"})"), Kind::conversations);
  EXPECT_EQ(kind_of(R"({"prompt": "a@", "completion": " b"})"), Kind::completions);
  EXPECT_EQ(kind_of(R"({"prompt": [{"role": "user", "content": "a@"}], )"
                    R"("completion": [{"role": "assistant", "content": "b"}]})"),
            Kind::conversations);
  EXPECT_EQ(kind_of(R"({"prompt": "a@", "chosen": "b", "rejected": "c"})"), Kind::preferences);
  // As UltraFeedback has them: the messages are those of the better answer.
  EXPECT_EQ(kind_of(R"({"messages": [{"role": "user", "content": "a"}], "id": "@", )"
                    R"("chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], )"
                    R"("rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]})"),
            Kind::preferences);
  EXPECT_EQ(kind_of(R"({"prompt": "a@", "completion": "b", "label": true})"), Kind::ratings);
  EXPECT_EQ(kind_of(R"({"text": "a@", "label": 1})"), Kind::classes);
  EXPECT_EQ(kind_of(R"({"text": "a@", "label": ["joy", "fear"]})"), Kind::class_sets);
  EXPECT_EQ(kind_of(R"({"text": "a@", "label": @.5})"), Kind::numbers);
  EXPECT_EQ(kind_of(R"({"text": "a@"})"), Kind::texts);
  EXPECT_EQ(kind_of(R"({"tokens": ["a", "b"], "ner_tags": [0, 1], "id": "@"})"), Kind::tags);
  EXPECT_EQ(kind_of(R"({"anchor": "a@", "positive": "b"})"), Kind::pairs);
  EXPECT_EQ(kind_of(R"({"sentence1": "a@", "sentence2": "b", "score": 0.5})"), Kind::scored_pairs);
  EXPECT_EQ(kind_of(R"({"sentence1": "a@", "sentence2": "b", "label": 0})"), Kind::classes);
}

TEST(FoundRecords, AreNotGuessed) {
  EXPECT_FALSE(found_in(R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(found_in(R"({"messages": [{"role": "user"}]})"));
  EXPECT_FALSE(found_in(R"({"tokens": ["a", "b"], "tags": ["x"]})"));
  EXPECT_FALSE(found_in(R"({"text": "a@", "label": "each has its own @"})"));
  EXPECT_FALSE(found_in("hello", ".bin"));
  EXPECT_THROW(found_in("", ".jsonl", "", 0), Error);
}

/// What a file with this content is.
std::optional<FoundRecords> found_in_text(const std::string& text, const std::string& ending,
                                          bool for_encoder = false) {
  const auto path = std::filesystem::path(::testing::TempDir()) / ("whole" + ending);
  std::ofstream(path) << text;
  return found_records(path.string(), for_encoder);
}

TEST(FoundRecords, AreWordsWithTagsByTheirForm) {
  const std::string sentences =
      "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\nBlackburn NNP I-NP I-PER\n";
  for (const std::string& text : {"-DOCSTART- -X- -X- O\n\n" + sentences, sentences}) {
    const auto found = found_in_text(text, ".txt");
    ASSERT_TRUE(found) << text;
    EXPECT_EQ(found->kind, Kind::tags);
    EXPECT_EQ(found->format, "conll");
  }
  std::string parts_of_speech, prose, verses;
  for (int i = 0; i < 30; ++i) {
    parts_of_speech += "the\tDT\ncat\tNN\nsleeps\tVBZ\n\n";
    prose += "To be or not to be, that is the question.\n\n";
    verses += "two words\ntwo words\n\n";
  }
  EXPECT_TRUE(found_in_text(parts_of_speech, ".txt"));
  EXPECT_FALSE(found_in_text(prose, ".txt"));
  EXPECT_FALSE(found_in_text(verses, ".txt"));
  EXPECT_FALSE(found_in_text("a O\nb O\n\nc O\n", ".txt")) << "no word is an entity";
}

TEST(FoundRecords, ArePairsByTheColumnsOfSentenceTransformers) {
  EXPECT_EQ(found_in(R"({"query": "a@", "document": "b"})")->columns, "text: 'query', text_pair: 'document'");
  EXPECT_EQ(found_in(R"({"query": "a@", "positive": "b", "negative": "c"})")->columns, "text: 'query'");
  EXPECT_EQ(found_in(R"({"sentence1": "a@", "sentence2": "b"})")->columns, "");
  for (const char* pair :
       {R"({"query": "a@", "document": "b"})", R"({"query": "a@", "positive": "b"})",
        R"({"anchor": "a@", "positive": "b", "negative": "c"})", R"({"sentence1": "a@", "sentence2": "b"})"})
    EXPECT_EQ(kind_of(pair), Kind::pairs);
  const std::string answers = "{\"question\": \"a\", \"answer\": \"b\"}\n{\"question\": \"c\", \"answer\": \"d\"}\n";
  EXPECT_EQ(found_in_text(answers, ".jsonl")->kind, Kind::completions);
  const auto for_encoder = found_in_text(answers, ".jsonl", /*for_encoder=*/true);
  EXPECT_EQ(for_encoder->kind, Kind::pairs);
  EXPECT_EQ(for_encoder->columns, "text: 'question', text_pair: 'answer'");
}

TEST(FoundRecords, ArePreferencesThoughAFewHaveNoDifference) {
  const auto pair = [](const std::string& worse) {
    const std::string asked = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": ")";
    return R"({"prompt": "a", "chosen": )" + asked + R"(b"}], "rejected": )" + asked + worse +
           R"("}], "score_chosen": 8.5, "score_rejected": 7.0})" + "\n";
  };
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += pair("c");
  const auto all = found_in_text(lines, ".jsonl");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->kind, Kind::preferences);
  EXPECT_TRUE(all->is_chat);
  EXPECT_EQ(all->max_bad_fraction, 0);
  const auto some = found_in_text(lines + pair("b"), ".jsonl");
  ASSERT_TRUE(some);
  EXPECT_GT(some->max_bad_fraction, 0);
  EXPECT_FALSE(found_in_text(pair("c") + pair("b"), ".jsonl"));
  EXPECT_FALSE(found_in(R"({"prompt": "a@", "chosen": "b", "rejected": "c"})")->is_chat);
}

TEST(FoundRecords, MayStandInATableWithoutNames) {
  std::string rows;
  for (int i = 0; i < 6; ++i) rows += "a film of words " + std::to_string(i) + "\t" + std::to_string(i % 2) + "\n";
  const auto found = found_in_text(rows, ".tsv");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Kind::classes);
  EXPECT_EQ(found->columns, "text: 0, label: 1");
  EXPECT_TRUE(found->has_no_names);
  EXPECT_FALSE(found_in_text("phrase\tpolarity\n" + rows, ".tsv")) << "its first row names the columns";
  EXPECT_EQ(column_names_of((std::filesystem::path(::testing::TempDir()) / "whole.tsv").string()), "phrase, polarity");
}

TEST(FoundRecords, SayWhichColumnsTheJobNames) {
  const auto table = found_in("'tis good @,pos", ".csv", "review,sentiment\n");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->kind, Kind::classes);
  EXPECT_EQ(table->format, "csv");
  EXPECT_EQ(table->columns, "text: 'review', label: 'sentiment'");
  EXPECT_EQ(found_in(R"({"question": "a@", "answer": "b"})")->columns, "prompt: 'question', completion: 'answer'");
  EXPECT_EQ(found_in(R"({"sentence1": "a@", "sentence2": "b", "label": 0})")->columns,
            "text: 'sentence1', text_pair: 'sentence2'");
  EXPECT_EQ(found_in(R"({"words": ["a@"], "ner_tags": ["O"]})")->columns, "words: 'words', tags: 'ner_tags'");
  const auto chat = found_in(
      R"({"chat": [{"role": "system", "content": "s"}, {"role": "user", "content": "a@"}, {"role": "assistant", "content": "b"}]})");
  EXPECT_EQ(chat->columns, "messages: 'chat'");
  EXPECT_EQ(chat->question, "a0");
  EXPECT_EQ(found_in("a B-X", ".conll", "")->kind, Kind::tags);
}

}  // namespace
}  // namespace gputrain::records

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

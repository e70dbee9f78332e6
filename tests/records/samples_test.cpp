// What all samples of texts have in common: columns that nothing reads are told, the first record does not decide for
// all, and a row of names is known.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/sample_of.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/data/negative_fields.hpp"
#include "samples_fixture.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A good record for what a task learns.
std::string record_for(Target target, const std::string& text = "a b c") {
  const std::string quoted = '"' + text + '"';
  if (target == Target::label || target == Target::labels) return R"("label": "x", "text": )" + quoted;
  if (target == Target::number) return R"("label": 0.5, "text": )" + quoted;
  if (target == Target::tags) return R"("tags": ["X", "O"], "tokens": ["b", )" + quoted + "]";
  if (target == Target::pairs) return R"("anchor": "a", "positive": )" + quoted;
  if (target == Target::preference) return R"("prompt": "a", "chosen": " b", "rejected": )" + quoted;
  if (target == Target::rating) return R"("prompt": "a", "label": true, "completion": )" + quoted;
  return R"("text": )" + quoted;
}

TEST_F(SamplesTest, CutTextsForEvaluationToTheLimitOfTheJobAlone) {
  std::string words = "a";
  for (int i = 1; i < 40; ++i) words += " a";  // 79 bytes
  for (const Target& target : targets_with_builder()) {
    const bool is_masked = target == Target::masked, is_divided = is_masked || target == Target::next_token;
    for (const std::string packing : {"", ", packing: true"}) {
      write("a.jsonl", "{" + record_for(target) + "}\n{" + record_for(target) + "}\n");
      write("b.jsonl", "{" + record_for(target, words) + "}\n");
      const auto val_of = [&](int64_t longest, const std::string& text) {
        return open_for({.field = kTokens, .longest = longest, .target = target},
                        "{train: {path: " + path("a.jsonl") + ", format: jsonl}, val: {path: " + path("b.jsonl") +
                            "}, text: {tokenizer: " + (is_masked ? "words, min_count: 1" : "bytes") + packing + text +
                            "}}")
            .val;
      };
      const auto told = [&](int64_t longest, const std::string& text) {
        return warning_of([&] { val_of(longest, text); });
      };
      const std::string where = std::string(target.name()) + packing;
      EXPECT_THAT(told(200, ""), Not(HasSubstr("cut"))) << where;
      EXPECT_GE(val_of(200, "")->layout().token_count(), 40) << where;
      EXPECT_GE(val_of(0, ", max_length: 200")->layout().token_count(), 40) << where;
      if (is_divided) continue;  // into pieces, of which none is cut
      EXPECT_THAT(told(30, ""), HasSubstr("(the most that the model takes)")) << where;
      EXPECT_THAT(told(200, ", max_length: 30"), HasSubstr("(data.text.max_length)")) << where;
      EXPECT_THAT(told(0, ""), HasSubstr("(as those of data.train; data.text.max_length sets it)")) << where;
    }
  }
}

TEST_F(SamplesTest, TellAColumnThatNothingReads) {
  for (const Target& target : targets_with_builder()) {
    if (target == Target::masked) continue;  // needs a tokenizer with a mask, below
    write("a.jsonl", "{" + record_for(target) + "}\n{" + record_for(target) +
                         R"(, "source": "web", "history": [["q", "a"]]})" + "\n");
    EXPECT_THAT(described(target, "a.jsonl"),
                AllOf(HasSubstr("not read: history (1 of 2), source (1 of 2)"),
                      HasSubstr("the column 'history' of 1 record is not read"), Not(HasSubstr("'source'"))))
        << target.name();
    write("b.jsonl", "{" + record_for(target) + R"(, "source": "", "history": []})" + "\n");
    EXPECT_THAT(described(target, "b.jsonl"), Not(HasSubstr("not read"))) << target.name();
  }
  write("a.jsonl", R"({"text": "a b c", "title": "d"})"
                   "\n");
  EXPECT_THAT(described(Target::masked, "a.jsonl", "tokenizer: words, min_count: 1"), HasSubstr("not read: title"));
}

TEST_F(SamplesTest, TellColumnsThatOthersGoBefore) {
  const auto told = [&](Target target, const std::string& record) {
    write("a.jsonl", record + "\n");
    return described(target, "a.jsonl", "tokenizer: bytes, chat_template: plain");
  };
  const std::string asked = R"([{"role": "user", "content": "q"}])",
                    said = R"([{"role": "assistant", "content": "a"}])";
  EXPECT_THAT(told(Target::next_token,
                   R"({"system": "s", "prompt": )" + asked + R"(, "completion": )" + said + R"(, "instruction": "i"})"),
              AllOf(HasSubstr("not read: instruction"), Not(HasSubstr("'system'"))));
  EXPECT_THAT(told(Target::next_token, R"({"system": "s", "prompt": "p", "completion": "c"})"),
              HasSubstr("the column 'system' of 1 record is not read"));
  EXPECT_THAT(told(Target::preference,
                   R"({"prompt": "p", "chosen": " a", "rejected": " b", "question": "q", "input": "i", "tools": [1]})"),
              HasSubstr("not read: input, question, tools"));
  EXPECT_THAT(told(Target::preference, R"({"question": "q", "input": "i", "chosen": "a", "rejected": "b"})"),
              Not(HasSubstr("not read")));
  EXPECT_THAT(told(Target::preference, R"({"instruction": "i", "question": "q", "chosen": "a", "rejected": "b"})"),
              HasSubstr("not read: question"));
  EXPECT_THAT(told(Target::preference, R"({"system": "s", "prompt": "p", "chosen": "a", "rejected": "b"})"),
              Not(HasSubstr("not read")));
}

TEST_F(SamplesTest, TellColumnsThatAnotherOneReplaces) {
  const auto told = [&](Target target, const std::string& record) {
    write("a.jsonl", record + "\n");
    return described(target, "a.jsonl", "tokenizer: bytes, chat_template: plain");
  };
  const std::string turns = R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, )"
                            R"({"role": "assistant", "content": "a"}])";
  EXPECT_THAT(told(Target::next_token, R"({"system": "t", "messages": )" + turns + "}"),
              HasSubstr("the column 'system' of 1 record is not read"));
  EXPECT_THAT(told(Target::next_token, R"({"system": "s", "messages": )" + turns + "}"), Not(HasSubstr("not read")));
  EXPECT_THAT(told(Target::preference, R"({"system": "t", "prompt": [{"role": "system", "content": "s"}, )"
                                       R"({"role": "user", "content": "q"}], "chosen": "a", "rejected": "b"})"),
              HasSubstr("the column 'system' of 1 record is not read"));
  EXPECT_THAT(told(Target::next_token, R"({"instruction": "i", "output": "o", "response": "r"})"),
              HasSubstr("not read: response"));
  const std::string asked = R"({"system": "s", "completion": "c", "prompt": )";
  EXPECT_THAT(told(Target::next_token, asked + R"("[1] is it?"})"),
              HasSubstr("the column 'system' of 1 record is not"));
  EXPECT_THAT(told(Target::next_token, R"({"instruction": "i", "output": null, "response": "r"})"),
              Not(HasSubstr("not read")));
}

/// An empty shard has no first row.
TEST_F(SamplesTest, BeginAtTheFilesThatHaveRecords) {
  static constexpr auto kRead = [](const RecordFile& file, int64_t&) {
    return std::vector<Record>(file.path == "empty" ? 0 : 2,
                               Record{.value = nlohmann::ordered_json::object(), .place = file.path});
  };
  const RecordFormat format{.name = "some", .endings = {}, .read = kRead};
  EXPECT_THAT(read_files({.path = "x"}, {"a", "empty", "b", "empty"}, format, {}).begins, ::testing::ElementsAre(0, 2));
}

TEST_F(SamplesTest, TellColumnsOfTables) {
  write("a.csv", "text,label,weight\na,x,2\nb,y,1\n");
  EXPECT_THAT(described(Target::label, "a.csv"),
              AllOf(HasSubstr("not read: weight"), HasSubstr("the column 'weight' of 2 records is not read")));
}

TEST_F(SamplesTest, TakeNegativesThatTheFirstRecordLacks) {
  write("a.jsonl", R"({"anchor": "a", "positive": "b"})"
                   "\n"
                   R"({"anchor": "c", "positive": "d", "negative": "e"})"
                   "\n");
  EXPECT_THAT(error_of([&] { opened(Target::pairs, "a.jsonl"); }),
              AllOf(HasSubstr("no text in 'negative', which others have"), HasSubstr("a.jsonl:1")));
  write("b.jsonl", R"({"anchor": "a", "positive": "b"})"
                   "\n"
                   R"({"anchor": "c", "positive": "d", "score": 1})"
                   "\n");
  EXPECT_THAT(error_of([&] { opened(Target::pairs, "b.jsonl"); }),
              HasSubstr("no number in 'score', which others have"));
}

TEST_F(SamplesTest, HaveSeveralNegatives) {
  write("a.jsonl", R"({"anchor": "a", "positive": "b", "negative_1": "c", "negative_2": "d"})"
                   "\n");
  const auto samples = opened(Target::pairs, "a.jsonl");
  EXPECT_THAT(samples.train->describe(), HasSubstr("1 pair with 2 negatives each"));
  auto sample = sample_of(*samples.train, 0);
  EXPECT_EQ(sample[data::negative_tokens(0)], std::vector<double>{'c'});
  EXPECT_EQ(sample[data::negative_tokens(1)], std::vector<double>{'d'});
}

TEST_F(SamplesTest, TellNegativesThatValidationHasAlone) {
  write("a.jsonl", R"({"anchor": "a", "positive": "b"})"
                   "\n");
  write("v.jsonl", R"({"anchor": "a", "positive": "b", "negative": "c"})"
                   "\n");
  const std::string val = ", val: {path: " + path("v.jsonl") + "}";
  EXPECT_THAT(warning_of([&] { opened(Target::pairs, "a.jsonl", val); }),
              HasSubstr("the column 'negative' of 1 record is not read"));
}

TEST_F(SamplesTest, WarnOfNumbersThatNoCosineReaches) {
  write("a.jsonl", R"({"sentence1": "a", "sentence2": "b", "score": 4.5})"
                   "\n");
  EXPECT_THAT(warning_of([&] { opened(Target::pairs, "a.jsonl"); }), HasSubstr("divide them by 4.5"));
  write("b.jsonl", R"({"sentence1": "a", "sentence2": "b", "score": -1})"
                   "\n");
  EXPECT_EQ(warning_of([&] { opened(Target::pairs, "b.jsonl"); }), "");
}

constexpr const char* kByNumber = "tokenizer: bytes, columns: {text: 0, label: 1}";

TEST_F(SamplesTest, KeepTheOnlySampleOfAClassInTheFirstRow) {
  write("a.tsv", "I have never seen such a film.\tbest\nnot good at all\tbad\nwhat a waste\tbad\n");
  data::DatasetSplits samples;
  EXPECT_THAT(warning_of([&] { samples = opened(Target::label, "a.tsv", "", kByNumber); }),
              HasSubstr("the first row is read as a record, though no other has its label"));
  EXPECT_EQ(samples.train->size(), 3);
  EXPECT_EQ(samples.train->class_names(), (std::vector<std::string>{"bad", "best"}));
}

TEST_F(SamplesTest, LeaveOutTheNamesOfEachFile) {
  write("x/a.tsv", "sentence\tlabel\nnot good at all\tbad\nwhat a waste\tbad\n");
  write("x/b.tsv", "sentence\tlabel\ngood\tgood\n");
  data::DatasetSplits samples;
  EXPECT_THAT(warning_of([&] {
                samples = open_for({.field = kTokens, .longest = 100, .target = Target::label},
                                   "{train: {path: " + path("x") + ", format: tsv}, text: {" + kByNumber + "}}");
              }),
              AllOf(HasSubstr("a.tsv:1: the first row names the columns"), HasSubstr("b.tsv:1: the first row names")));
  EXPECT_EQ(samples.train->class_names(), (std::vector<std::string>{"bad", "good"}));
}

TEST_F(SamplesTest, KnowTheFirstRowOfAColumnForEachClass) {
  const std::string rows = "good\t1\t0\nnot good at all, in my view\t0\t1\nwhat a waste of my time\t0\t0\n";
  write("plain.tsv", rows);
  write("named.tsv", "sentence\tgood\tbad\n" + rows);
  for (const char* name : {"plain.tsv", "named.tsv"}) {
    const auto samples = opened(Target::labels, name, "", "tokenizer: bytes, columns: {text: 0, label: [1, 2]}");
    EXPECT_EQ(samples.train->size(), 3) << name;
    EXPECT_EQ(samples.train->class_names(), (std::vector<std::string>{"1", "2"}));
  }
}

}  // namespace
}  // namespace gputrain::records

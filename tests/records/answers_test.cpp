// Answers to prompts: pairs of which one is better, answers that are good or bad.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/records/samples/answers.hpp"
#include "datasets/opened.hpp"
#include "datasets/sample_of.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/answer_fields.hpp"
#include "gputrain/data/batch.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

struct AnswersTest : FolderTest {
  data::DatasetSplits opened(Target target, const std::string& lines, const std::string& more = "") const {
    write("a.jsonl", lines);
    const config::Loaded job = config::load(config::schema_of<JobWithData>(),
                                            {.file = "job.yaml",
                                             .text = "data: {train: {path: " + path("a.jsonl") +
                                                     ", format: jsonl}, text: {tokenizer: bytes" + more + "}}"});
    return data::open_datasets(job.as<JobWithData>().data, {.field = kTokens, .longest = 100, .target = target}, {});
  }
  std::string refusal(Target target, const std::string& lines, const std::string& more = "") const {
    try {
      opened(target, lines, more);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

std::vector<double> targets_of(const std::string& text, size_t prompt) {
  std::vector<double> targets(prompt - 1, kIgnoreIndex);
  for (size_t i = prompt; i < text.size(); ++i) targets.push_back(text[i]);
  targets.push_back(kIgnoreIndex);
  return targets;
}

TEST_F(AnswersTest, ArePairsOfWhichTheAnswerCounts) {
  const auto data = opened(Target::preference, R"({"prompt": "ab", "chosen": "cd", "rejected": "e"})");
  const auto sample = sample_of(*data.train, 0);
  EXPECT_THAT(sample.at(kTokens), ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_EQ(sample.at(kTarget), targets_of("abcd", 2));
  EXPECT_THAT(sample.at(kRejectedTokens), ElementsAre('a', 'b', 'e'));
  EXPECT_EQ(sample.at(kRejectedTarget), targets_of("abe", 2));
  EXPECT_EQ(data.train->length(0), 4);
}

TEST_F(AnswersTest, AreRatedBesideTheAnswerToTheSampleBefore) {
  const auto data = opened(Target::rating, R"({"prompt": "ab", "completion": "c", "label": true}
{"prompt": "x", "completion": "yz", "label": 0}
)");
  const auto first = sample_of(*data.train, 0), second = sample_of(*data.train, 1);
  EXPECT_THAT(first.at(data::kIsGood), ElementsAre(1));
  EXPECT_THAT(second.at(data::kIsGood), ElementsAre(0));
  EXPECT_EQ(first.at(kTarget), targets_of("abc", 2));
  EXPECT_EQ(first.at(data::kUnrelatedTarget), targets_of("abyz", 2));
  EXPECT_EQ(second.at(data::kUnrelatedTarget), targets_of("xc", 1));
}

TEST(Answers, BeginWithWhatBothShare) {
  const data::ColumnNames names;
  const auto parts = [&](const char* record) {
    const Preference preference = preference_in(Json::parse(record), names);
    EXPECT_EQ(preference.chosen.prompt, preference.rejected.prompt);
    return std::vector<std::string>{preference.chosen.prompt.dump(), preference.chosen.answer.dump(),
                                    preference.rejected.answer.dump()};
  };
  EXPECT_THAT(parts(R"({"chosen": "Who? I do", "rejected": "Who? You"})"),
              ElementsAre("\"Who?\"", "\" I do\"", "\" You\""));
  EXPECT_THAT(parts(R"({"chosen": "a é", "rejected": "a è"})"), ElementsAre("\"a\"", "\" é\"", "\" è\""));
  // A text as prompt beside lists that repeat it.
  EXPECT_THAT(
      parts(R"({"prompt": "q", "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                        "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})"),
      ElementsAre(R"([{"role":"user","content":"q"}])", R"([{"role":"assistant","content":"a"}])",
                  R"([{"role":"assistant","content":"b"}])"));
  // A text as prompt of messages that do not repeat it is what the user says.
  EXPECT_THAT(
      parts(
          R"({"prompt": "q", "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]})"),
      ElementsAre(R"([{"role":"user","content":"q"}])", R"([{"role":"assistant","content":"a"}])",
                  R"([{"role":"assistant","content":"b"}])"));
  // Alpaca's columns, or a question, are a conversation; so is a prompt with a system message.
  EXPECT_THAT(parts(R"({"system": "s", "question": "q", "chosen": "a", "rejected": "b"})"),
              ElementsAre(R"([{"role":"system","content":"s"},{"role":"user","content":"q"}])",
                          R"([{"role":"assistant","content":"a"}])", R"([{"role":"assistant","content":"b"}])"));
  EXPECT_EQ(parts(R"({"instruction": "i", "input": "x", "history": [["q", "r"]], "chosen": "a", "rejected": "b"})")[0],
            R"([{"role":"user","content":"q"},{"role":"assistant","content":"r"},{"role":"user","content":"i\nx","alpaca":{"instruction":"i","input":"x"}}])");
  EXPECT_EQ(parts(R"({"question": "q", "input": "x", "chosen": "a", "rejected": "b"})")[0],
            R"([{"role":"user","content":"q\nx","alpaca":{"instruction":"q","input":"x"}}])");
  EXPECT_EQ(parts(R"({"system": "s", "prompt": "q", "chosen": "a", "rejected": "b"})")[0],
            R"([{"role":"system","content":"s"},{"role":"user","content":"q"}])");
  EXPECT_EQ(parts(R"({"system": "s", "prompt": [{"role": "user", "content": "q"}],
                      "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]})")
                [0],
            R"([{"role":"system","content":"s"},{"role":"user","content":"q"}])");
  // Texts after a list are what the assistant says.
  EXPECT_THAT(parts(R"({"prompt": [{"role": "user", "content": "q"}], "chosen": "a", "rejected": "b"})")[1],
              R"([{"role":"assistant","content":"a"}])");
}

TEST_F(AnswersTest, ShareRowsOfTheTrainingDatasShape) {
  const std::string pair = R"({"prompt": "ab", "chosen": "cd", "rejected": "e"})",
                    longer = R"({"prompt": "abcdefg", "chosen": "hi", "rejected": "j"})";
  write("a.jsonl", pair + "\n" + longer + "\n");
  write("b.jsonl", pair + "\n" + pair + "\n" + pair + "\n");
  const config::Loaded job = config::load(
      config::schema_of<JobWithData>(),
      {.file = "job.yaml",
       .text = "data: {train: {path: " + path("a.jsonl") + ", format: jsonl}, val: {path: " + path("b.jsonl") +
               ", format: jsonl}, text: {tokenizer: bytes, packing: true, max_length: 18}}"});
  const auto data = data::open_datasets(job.as<JobWithData>().data,
                                        {.field = kTokens, .longest = 100, .target = Target::preference}, {});
  EXPECT_EQ(data.train->size(), 2);  // 17 and 7 tokens
  EXPECT_EQ(data.val->size(), 3);    // one pair a row, as in data.train
  const auto sample = sample_of(*data.val, 0);
  EXPECT_THAT(sample.at(kTokens), ElementsAre('a', 'b', 'c', 'd', 'a', 'b', 'e', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(sample.at(data::kTextOfToken),
              ElementsAre(0, 0, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(sample.at(data::kIsSample), ElementsAre(0));
}

TEST_F(AnswersTest, HaveAnotherHashWhereOneWordIsAnother) {
  std::string lines;
  for (int i = 0; i < 3000; ++i)
    lines += R"({"prompt": "question", "chosen": "some answer", "rejected": "another"})"
             "\n";
  const uint64_t before = opened(Target::preference, lines).train->content_hash();
  lines[lines.size() / 2 + lines.substr(lines.size() / 2).find("some")] = 'S';
  EXPECT_NE(opened(Target::preference, lines).train->content_hash(), before);
}

/// Roles are called otherwise, too.
TEST(Answers, KeepAPromptBesideMessagesOfAnyRole) {
  const auto parts = [](const std::string& prompt, const std::string& first) {
    const auto list = [&](const char* answer) {
      return "[" + first + R"({"from": "gpt", "value": ")" + answer + R"("}])";
    };
    const Preference preference =
        preference_in(Json::parse("{\"prompt\": \"" + prompt + "\", \"system\": \"s\", \"chosen\": " + list("a") +
                                  ", \"rejected\": " + list("b") + "}"),
                      data::ColumnNames());
    return preference.chosen.prompt.dump() + preference.chosen.answer.dump();
  };
  const std::string asked = R"([{"role":"system","content":"s"},{"role":"user","content":"q"}])",
                    said = R"([{"role":"assistant","content":"a"}])";
  EXPECT_EQ(parts("q", ""), asked + said);
  EXPECT_EQ(parts("q", R"({"from": "human", "value": "q"}, )"), asked + said);
  EXPECT_THROW(parts("You are a pirate", R"({"from": "human", "value": "q"}, )"), Error);
}

/// Tables have lists of messages as JSON text, and truth as any program writes it.
TEST(Answers, AreReadInCellsOfTables) {
  const auto pair = [](const std::string& prompt) {
    const Json record{{"prompt", prompt},
                      {"chosen", R"([{"role": "assistant", "content": "a"}])"},
                      {"rejected", R"( [{"role": "assistant", "content": "b"}])"}};
    const Preference preference = preference_in(record, data::ColumnNames());
    return preference.chosen.prompt.dump() + preference.chosen.answer.dump();
  };
  const char* whole = R"([{"role":"user","content":"q"}][{"role":"assistant","content":"a"}])";
  EXPECT_EQ(pair("q"), whole);
  EXPECT_EQ(pair(R"([{"role": "user", "content": "q"}])"), whole);
  EXPECT_THROW(pair("[{'role': 'user', 'content': 'q'}]"), Error);
  EXPECT_EQ(pair("[1] is what?"), R"([{"role":"user","content":"[1] is what?"}][{"role":"assistant","content":"a"}])");
  const auto is_good = [](const char* label) {
    return ratings_in(Json{{"prompt", "p"}, {"completion", "c"}, {"label", label}}, data::ColumnNames())[0].is_good;
  };
  for (const char* label : {"TRUE", "1.0", " true ", "True", "1"}) EXPECT_TRUE(is_good(label)) << label;
  for (const char* label : {"FALSE", "0.0", " false", "0"}) EXPECT_FALSE(is_good(label)) << label;
  EXPECT_THROW(is_good("yes"), Error);
}

TEST(Answers, OfPairsAreRatedOneByOne) {
  const auto ratings =
      ratings_in(Json::parse(R"({"prompt": "p", "chosen": "a", "rejected": "b"})"), data::ColumnNames());
  ASSERT_EQ(ratings.size(), 2U);
  EXPECT_TRUE(ratings[0].is_good);
  EXPECT_FALSE(ratings[1].is_good);
  EXPECT_EQ(ratings[1].dialogue.answer, "b");
}

TEST(Answers, MayBeOneMessageAsAxolotlAndLlamaFactoryWriteThem) {
  data::ColumnNames names;
  names.prompt = "conversations";
  const auto ratings = ratings_in(Json::parse(R"({"conversations": [{"from": "human", "value": "p"}],
      "chosen": {"from": "gpt", "value": "a"}, "rejected": {"role": "assistant", "content": "b"}})"),
                                  names);
  ASSERT_EQ(ratings.size(), 2U);
  EXPECT_EQ(ratings[0].dialogue.prompt[0]["content"], "p");
  EXPECT_EQ(ratings[0].dialogue.answer[0]["content"], "a");
  EXPECT_EQ(ratings[1].dialogue.answer[0]["content"], "b");
}

TEST_F(AnswersTest, SayWhatIsWrong) {
  const auto pair = [&](const std::string& line) { return refusal(Target::preference, line); };
  EXPECT_THAT(pair(R"({"prompt": "a", "chosen": "b"})"), HasSubstr("no 'rejected'"));
  EXPECT_THAT(pair(R"({"prompt": "a", "chosen": "b", "rejected": 3})"), HasSubstr("neither a text nor a list"));
  EXPECT_THAT(pair(R"({"prompt": "a", "chosen": "b", "rejected": ""})"), HasSubstr("'rejected' is empty"));
  EXPECT_THAT(pair(R"({"chosen": "ab", "rejected": "abc"})"), HasSubstr("one answer is the begin of the other"));
  EXPECT_THAT(refusal(Target::preference,
                      R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "user", "content": "a"}], )"
                      R"("rejected": "b"})",
                      ", chat_template: chatml"),
              HasSubstr("no message of the assistant"));
  EXPECT_THAT(refusal(Target::rating, R"({"prompt": "a", "completion": "b", "label": "good"})"),
              HasSubstr("neither true nor false"));
  const Json latin{{"prompt", "a"}, {"completion", "b"}, {"label", "s\xed"}};  // a cell that is not UTF-8
  EXPECT_THROW(ratings_in(latin, data::ColumnNames()), Error);
  EXPECT_THAT(refusal(Target::rating, R"({"prompt": "a", "completion": "b"})"), HasSubstr("without a label"));
  const std::string good = R"({"prompt": "abc", "chosen": "d", "rejected": "e"})";
  EXPECT_THAT(refusal(Target::preference, good, ", max_length: 3"), HasSubstr("within the first 3 tokens"));
  EXPECT_THAT(refusal(Target::preference, good, ", loss_on: all"), HasSubstr("all of it"));
  EXPECT_THAT(refusal(Target::preference, good, ", roles_to_train: [user]"), HasSubstr("data.text.roles_to_train"));
  EXPECT_THAT(refusal(Target::preference, good, ", train_on_eos: none"), HasSubstr("data.text.train_on_eos"));
}

}  // namespace
}  // namespace gputrain::records

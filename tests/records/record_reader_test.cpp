// Samples of a target that a task brings with a reader of records, and data for validation beside a part of other data.
#include "gputrain/records/record_reader.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/sample_of.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/data/subset.hpp"
#include "samples_fixture.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Target kSizes{"sizes", "the sizes of a text"};

/// Learns how many bytes and how many words a text has. A column without a name is a text.
class SizeReader final : public RecordReader {
 public:
  std::vector<std::string> columns() const override { return {"text", "question", "0"}; }
  std::vector<std::string> texts(const nlohmann::ordered_json& record) const override {
    if (!record.contains("question")) return {text_of(record)};
    return {text_in(record, "question"), text_in(record, "text")};
  }
  data::SampleLayout learned() const override {
    return {.fields = {{.name = kTarget, .type = at::kFloat, .sizes = {2}, .fill = std::nan(""), .target = true},
                       {.name = "is_long"}},
            .outputs = 2};
  }
  std::vector<float> numbers(const nlohmann::ordered_json& record) const override {
    const std::string text = text_of(record);
    const auto words = static_cast<float>(1 + std::ranges::count(text, ' '));
    return {static_cast<float>(text.size()), words, words > 2 ? 1.0F : 0.0F};
  }

 private:
  static std::string text_of(const nlohmann::ordered_json& record) {
    return text_in(record, record.contains("0") ? "0" : "text");
  }
};

struct RecordReaderTest : SamplesTest {
  static void SetUpTestSuite() {
    add_reader(kSizes, [](const data::DatasetRequest&) -> std::unique_ptr<RecordReader> {
      return std::make_unique<SizeReader>();
    });
  }
};

TEST_F(RecordReaderTest, MakesTextsAndTheNumbersOfItsFields) {
  write("a.jsonl", "{\"text\": \"a bc\"}\n{\"text\": \"d e f\", \"more\": 1}\n");
  write("v.jsonl", "{\"question\": \"q\", \"text\": \"a\"}\n");
  const auto data = opened(kSizes, "a.jsonl", ", val: {path: " + path("v.jsonl") + "}");
  EXPECT_EQ(data.train->layout().outputs, 2);
  EXPECT_THAT(data.train->describe(), AllOf(HasSubstr("3 numbers each"), HasSubstr("not read: more")));
  auto sample = sample_of(*data.train, 1);
  EXPECT_THAT(sample["tokens"], ElementsAre('d', ' ', 'e', ' ', 'f'));
  EXPECT_THAT(sample["target"], ElementsAre(5, 3));
  EXPECT_THAT(sample["is_long"], ElementsAre(1));
  EXPECT_THAT(sample_of(*data.train, 0)["is_long"], ElementsAre(0));
  EXPECT_EQ(data.train->class_of(0), std::nullopt);
  EXPECT_THAT(sample_of(*data.val, 0)["tokens"], ElementsAre('q', 'a'));
}

TEST_F(RecordReaderTest, TellsOfTwoTextsWhichTokensAreOfTheSecond) {
  write("a.jsonl", "{\"question\": \"a\", \"text\": \"b\"}\n{\"text\": \"a\"}\n");
  const auto data = opened(kSizes, "a.jsonl", "", "tokenizer: words, min_count: 1");
  auto sample = sample_of(*data.train, 0);
  EXPECT_THAT(sample["token_types"], ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(sample_of(*data.train, 1)["token_types"], ElementsAre(0, 0, 0));
}

TEST_F(RecordReaderTest, SaysWhichRecordItCannotUse) {
  write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 7}\n");
  EXPECT_THAT(error_of([&] { opened(kSizes, "a.jsonl"); }),
              AllOf(HasSubstr("'text' is no text"), HasSubstr("a.jsonl:2")));
}

TEST_F(RecordReaderTest, TakesAFirstRowWithANumberForARecord) {
  const std::string rows = "so\t7\nnot good at all\t8\nwhat a waste\t9\n";
  for (const std::string names : {"", "sentence\trank\n"}) {
    write("a.tsv", names + rows);
    const auto data = opened(kSizes, "a.tsv", "", "tokenizer: bytes, columns: {text: 0, label: 1}");
    EXPECT_EQ(data.train->size(), 3) << names;
    EXPECT_THAT(sample_of(*data.train, 0)["target"], ElementsAre(2, 1)) << names;
  }
}

TEST_F(RecordReaderTest, IsTheOnlyOneOfItsTarget) {
  EXPECT_THROW(add_reader(kSizes, nullptr), std::logic_error);
  EXPECT_THROW(add_reader(Target::label, nullptr), std::logic_error);
  write("a.jsonl", "{\"text\": \"a\"}\n");
  EXPECT_THAT(error_of([&] { opened(Target("moods", "the mood of a text"), "a.jsonl"); }, ExitCode::usage),
              HasSubstr("records have no samples for a model that gives the mood of a text"));
}

TEST(ColumnsOfRecords, AreReadAsTextAndNumbers) {
  const auto record = nlohmann::ordered_json::parse(R"({"a": "t", "b": "1.5", "c": null})");
  EXPECT_EQ(text_in(record, "a"), "t");
  EXPECT_EQ(number_in(record, "b"), 1.5);
  EXPECT_THROW(text_in(record, "c"), Error);
  EXPECT_THROW(number_in(record, "a"), Error);
  EXPECT_THAT(error_of([&] { text_in(record, "d", "name it"); }), AllOf(HasSubstr("no 'd'"), HasSubstr("name it")));
}

/// Opens `name` for validation beside a part of training data, as a mixture or a subset of it would be.
struct ValidationTest : SamplesTest {
  std::unique_ptr<data::Dataset> beside(const data::Dataset& train, const std::string& name) const {
    const InputSpec model{.field = kTokens, .longest = 100, .target = Target::label};
    const data::FirstSamples part({&train, [](const auto*) {}}, 1);
    const data::Signature known = data::Signature::of(part, model);
    return data::catalog().make(
        data::catalog().with_defaults("jsonl"),
        {.path = path(name), .role = data::Split::val, .model = model, .sequence_length = 100, .train = &known});
  }
};

TEST_F(ValidationTest, KeepsClassesAndTokenizerOfAPartOfTheTrainingData) {
  write("a.jsonl", "{\"text\": \"ab\", \"label\": \"x\"}\n{\"text\": \"c\", \"label\": \"y\"}\n");
  write("v.jsonl", "{\"text\": \"c\", \"label\": \"y\"}\n");
  const auto train = opened(Target::label, "a.jsonl", "", "tokenizer: characters").train;
  const auto val = beside(*train, "v.jsonl");
  EXPECT_THAT(val->class_names(), ElementsAre("x", "y"));
  EXPECT_EQ(val->tokenizer(), train->tokenizer());
  EXPECT_EQ(val->layout().outputs, 2);
  EXPECT_EQ(val->layout().token_count(), train->layout().token_count());
  EXPECT_THAT(sample_of(*val, 0)["target"], ElementsAre(1));
  write("v.jsonl", "{\"text\": \"c\", \"label\": \"z\"}\n");
  EXPECT_THAT(error_of([&] { beside(*train, "v.jsonl"); }), HasSubstr("z"));
}

}  // namespace
}  // namespace gputrain::records

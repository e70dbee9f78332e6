// Texts with classes, sets of classes and numbers; texts of which a mask hides tokens.
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/records/samples/masking.hpp"
#include "../../src/records/tokens/encoded_texts.hpp"
#include "datasets/opened.hpp"
#include "datasets/sample_of.hpp"
#include "gputrain/data/batch.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

data::DatasetSplits opened_for(Target target, const std::string& section, int64_t longest = 100) {
  const config::Loaded job =
      config::load(config::schema_of<JobWithData>(), {.file = "job.yaml", .text = "data: " + section});
  return data::open_datasets(job.as<JobWithData>().data, {.field = kTokens, .longest = longest, .target = target}, {});
}

struct LabelledTextsTest : FolderTest {
  std::string section(const std::string& name, const std::string& more = "") const {
    const std::string format = name.substr(name.rfind('.') + 1);
    return "{train: {path: " + path(name) + ", format: " + format + "}, text: {tokenizer: words, min_count: 1" + more +
           "}}";
  }
};

// The words of a small tokenizer: 2 is [CLS], 3 is [SEP], and words follow by how often they are there.
TEST_F(LabelledTextsTest, AreTokensWithAClass) {
  write("a.jsonl",
        "{\"text\": \"Good good film!\", \"label\": \"positive\"}\n{\"text\": \"good\", \"label\": \"negative\"}\n");
  const auto data = opened_for(Target::label, section("a.jsonl"));
  EXPECT_THAT(data.train->class_names(), ElementsAre("negative", "positive"));
  EXPECT_EQ(data.train->layout().outputs, 2);
  const auto first = sample_of(*data.train, 0);
  EXPECT_THAT(first.at("tokens"), SizeIs(6));
  EXPECT_EQ(first.at("tokens").front(), 2);
  EXPECT_EQ(first.at("tokens").back(), 3);
  EXPECT_EQ(first.at("tokens")[1], 5);
  EXPECT_EQ(first.at("tokens")[2], 5);
  EXPECT_THAT(first.at("target"), ElementsAre(1));
  EXPECT_EQ(first.count("token_types"), 0U);
  EXPECT_THAT(sample_of(*data.train, 1).at("target"), ElementsAre(0));
}

/// The tokens around a text are no text.
TEST_F(LabelledTextsTest, RefuseAnEmptyText) {
  write("a.csv", "text,label\na b,x\n\" \",y\n");
  EXPECT_THAT(error_of([&] { opened_for(Target::label, section("a.csv")); }),
              AllOf(HasSubstr("the text is empty"), HasSubstr("a.csv:3")));
}

TEST_F(LabelledTextsTest, TellTwoTextsApart) {
  write("a.csv", "text,text_pair,label\na b,c,1\na,b b c,0\n");
  const auto data = opened_for(Target::label, section("a.csv"));
  const auto sample = sample_of(*data.train, 1);
  EXPECT_THAT(sample.at("tokens"), SizeIs(7));
  EXPECT_THAT(sample.at("token_types"), ElementsAre(0, 0, 0, 1, 1, 1, 1));
}

TEST_F(LabelledTextsTest, AreFoundByNumbersOfColumnsWithAndWithoutNames) {
  write("plain.tsv", "a b\t1\nb\t0\nc\t1\n");
  write("named.tsv", "sentence\tscore\na b\t1\nb\t0\nc\t1\n");
  for (const char* name : {"plain.tsv", "named.tsv"}) {
    const auto data = opened_for(Target::label, section(name, ", columns: {text: 0, label: 1}"));
    EXPECT_EQ(data.train->size(), 3) << name;
    EXPECT_THAT(data.train->class_names(), ElementsAre("0", "1"));
  }
  EXPECT_THAT(error_of([&] { opened_for(Target::label, section("plain.tsv")); }),
              AllOf(HasSubstr("no 'text'"), HasSubstr("{text: 0, label: 1}")));
}

TEST_F(LabelledTextsTest, CountClassesThatAreNumbersByTheirSize) {
  write("a.jsonl",
        "{\"text\": \"a\", \"label\": 10}\n{\"text\": \"a\", \"label\": 9}\n{\"text\": \"a\", \"label\": 2.0}\n");
  EXPECT_THAT(opened_for(Target::label, section("a.jsonl")).train->class_names(), ElementsAre("2", "9", "10"));
}

TEST_F(LabelledTextsTest, GiveClassesOfTheTrainingDataToOthers) {
  write("a.csv", "text,label\na,yes\nb,no\n");
  write("val.csv", "text,label\na,yes\n");
  const std::string files = "{train: {path: " + path("a.csv") + ", format: csv}, val: {path: " + path("val.csv") +
                            "}, text: {tokenizer: words, min_count: 1}}";
  EXPECT_THAT(sample_of(*opened_for(Target::label, files).val, 0).at("target"), ElementsAre(1));
  write("val.csv", "text,label\na,maybe\n");
  EXPECT_THAT(error_of([&] { opened_for(Target::label, files); }),
              AllOf(HasSubstr("'maybe' is not one of the training data: no, yes"), HasSubstr("val.csv:2")));
}

TEST_F(LabelledTextsTest, RefuseLabelsThatAreEmptyOrOfAnotherKind) {
  const auto refusal = [&](Target target, const std::string& label) {
    write("a.jsonl", "{\"text\": \"a\", \"label\": " + label + "}\n");
    return error_of([&] { opened_for(target, section("a.jsonl")); });
  };
  EXPECT_THAT(refusal(Target::label, "\" \""), AllOf(HasSubstr("the label is empty"), HasSubstr("a.jsonl:1")));
  EXPECT_THAT(refusal(Target::label, "null"), HasSubstr("'label' is null"));
  EXPECT_THAT(refusal(Target::label, "0.5"), HasSubstr("type: regression"));
  EXPECT_THAT(refusal(Target::label, "[\"a\"]"), HasSubstr("type: multi_label_classification"));
  EXPECT_THAT(refusal(Target::number, "\"four\""), HasSubstr("no number"));
  EXPECT_THAT(refusal(Target::number, "\"nan\""), HasSubstr("no number"));
  EXPECT_THAT(refusal(Target::number, "1e300"), HasSubstr("no number"));  // infinite as a float
}

TEST_F(LabelledTextsTest, KeepNumbersOfClassesThatAreLarge) {
  write("a.jsonl", "{\"text\": \"a\", \"label\": 18446744073709551615}\n{\"text\": \"a\", \"label\": -3}\n");
  EXPECT_THAT(opened_for(Target::label, section("a.jsonl")).train->class_names(),
              ElementsAre("-3", "18446744073709551615"));
}

// They would end a run when it writes config.json.
TEST_F(LabelledTextsTest, RefuseLabelsThatAreNotUtf8) {
  write("a.csv", "text,label\na,good\nb,caf\xe9\n");
  for (const Target target : {Target::label, Target::labels}) {
    EXPECT_THAT(error_of([&] { opened_for(target, section("a.csv")); }),
                AllOf(HasSubstr("the label is not UTF-8"), HasSubstr("a.csv:3"), HasSubstr("iconv")));
  }
}

TEST_F(LabelledTextsTest, NameUnknownClassesBriefly) {
  const std::string text(5000, 'x');
  write("a.csv", "text,label\na," + text + "\nb," + text + "y\n");
  write("val.csv", "text,label\na," + text + "z\n");
  const std::string files = "{train: {path: " + path("a.csv") + ", format: csv}, val: {path: " + path("val.csv") +
                            "}, text: {tokenizer: words, min_count: 1}}";
  EXPECT_LT(error_of([&] { opened_for(Target::label, files); }).size(), 600U);
}

TEST_F(LabelledTextsTest, MayHaveASetOfClassesOrANumber) {
  write("a.csv", "text,label\na,joy | anger\nb,\nc,fear\n");
  const auto sets = opened_for(Target::labels, section("a.csv"));
  EXPECT_THAT(sets.train->class_names(), ElementsAre("anger", "fear", "joy"));
  EXPECT_THAT(sample_of(*sets.train, 0).at("target"), ElementsAre(1, 0, 1));
  EXPECT_THAT(sample_of(*sets.train, 1).at("target"), ElementsAre(0, 0, 0));
  write("b.csv", "text,label\na,2.5\nb,-1\n");
  const auto numbers = opened_for(Target::number, section("b.csv"));
  EXPECT_THAT(sample_of(*numbers.train, 0).at("target"), ElementsAre(2.5));
  EXPECT_EQ(numbers.train->layout().outputs, 1);
}

TEST_F(LabelledTextsTest, MayHaveAColumnForEachClass) {
  write("a.csv", "text,toxic,rude\na,1,0\nb,0,0\nc,1,1\n");
  const auto sets = opened_for(Target::labels, section("a.csv", ", columns: {label: [toxic, rude]}"));
  EXPECT_THAT(sets.train->class_names(), ElementsAre("rude", "toxic"));
  EXPECT_THAT(sample_of(*sets.train, 0).at("target"), ElementsAre(0, 1));
  EXPECT_THAT(sample_of(*sets.train, 2).at("target"), ElementsAre(1, 1));
  EXPECT_THAT(error_of([&] { opened_for(Target::label, section("a.csv", ", columns: {label: [toxic, rude]}")); }),
              AllOf(HasSubstr("0 of the columns of classes are 1"), HasSubstr("a.csv:3")));
  EXPECT_THAT(error_of([&] { opened_for(Target::number, section("a.csv", ", columns: {label: [toxic, rude]}")); },
                       ExitCode::usage),
              HasSubstr("a text has one number"));
}

TEST_F(LabelledTextsTest, HaveTheClassesOfTheTrainingDataHoweverTheyAreWritten) {
  write("a.csv", "text,label\na,12.0\nb,3.0\n");
  write("b.csv", "text,label\nc,12\n");
  const std::string job = section("a.csv");
  const auto data = opened_for(Target::label, job.substr(0, job.size() - 1) + ", val: {path: " + path("b.csv") + "}}");
  EXPECT_THAT(data.train->class_names(), ElementsAre("3", "12"));
  EXPECT_THAT(sample_of(*data.val, 0).at("target"), ElementsAre(1));
}

/// A tokenizer of numbers below 100, with a frame of its own.
struct Numbers final : tokenizers::Tokenizer {
  int64_t vocabulary_size() const override { return 100; }
  std::string decode(std::span<const int64_t> tokens) const override {
    return (tokens[0] % 2 == 0 ? " " : "") + std::to_string(tokens[0]);
  }
  tokenizers::Frame frame(bool has_two_texts) const override {
    return {.before = {0}, .between = has_two_texts ? std::vector<int64_t>{1} : std::vector<int64_t>{}, .behind = {1}};
  }
  std::optional<int64_t> mask_token() const override { return 2; }
  bool is_special(int64_t token) const override { return token < 3; }

 private:
  void tokenize(std::string_view, const std::string&, const Take&, std::vector<tokenizers::ByteRange>*) const override {
  }
};

TEST(FramedTexts, CutTheLongerTextFirst) {
  const auto tokens = [](size_t first, size_t second, int64_t most) {
    const FramedTexts texts =
        framed(Numbers(), std::vector<int64_t>(first, 10), std::vector<int64_t>(second, 20), most);
    return std::pair(std::ranges::count(texts.tokens, 10), std::ranges::count(texts.tokens, 20));
  };
  EXPECT_EQ(tokens(10, 3, 100), std::pair(10L, 3L));
  EXPECT_EQ(tokens(10, 3, 11), std::pair(5L, 3L));
  EXPECT_EQ(tokens(10, 8, 9), std::pair(3L, 3L));
  EXPECT_EQ(tokens(2, 9, 8), std::pair(2L, 3L));
  EXPECT_EQ(tokens(10, 8, 10), std::pair(4L, 3L));
  EXPECT_EQ(tokens(8, 8, 10), std::pair(3L, 4L));
  EXPECT_EQ(tokens(5, 5, 2), std::pair(0L, 0L));
  EXPECT_THAT(framed(Numbers(), {10}, std::vector<int64_t>{20}, 2).tokens, SizeIs(2));  // less than the frame
}

TEST(Masking, HidesTheSharesOfThePaper) {
  const Masking masking({.fraction = 0.15}, Numbers());
  int64_t chosen = 0, masked = 0, same = 0, all = 0;
  for (uint64_t sample = 0; sample < 200; ++sample) {
    std::vector<int64_t> tokens(500, 7), targets(500);
    tokens[0] = 0;
    masking.hide(tokens, targets, 1, sample);
    EXPECT_EQ(targets[0], kIgnoreIndex);
    for (size_t i = 1; i < tokens.size(); ++i) {
      ++all;
      if (targets[i] == kIgnoreIndex) {
        EXPECT_EQ(tokens[i], 7);
        continue;
      }
      EXPECT_EQ(targets[i], 7);
      ++chosen;
      masked += tokens[i] == 2;
      same += tokens[i] == 7;
    }
  }
  const auto share = [](int64_t part, int64_t of) { return static_cast<double>(part) / static_cast<double>(of); };
  EXPECT_NEAR(share(chosen, all), 0.15, 0.005);
  EXPECT_NEAR(share(masked, chosen), 0.8 + 0.001, 0.015);
  EXPECT_NEAR(share(same, chosen), 0.1 + 0.001, 0.01);
}

TEST(Masking, HidesWholeWords) {
  const Masking masking({.fraction = 0.3, .whole_words = true}, Numbers());
  const std::vector<int64_t> text{4, 5, 7, 6, 9, 8, 10, 11};  // even tokens begin words
  std::set<size_t> words;
  for (uint64_t sample = 0; sample < 100; ++sample) {
    std::vector<int64_t> tokens = text, targets(text.size());
    masking.hide(tokens, targets, 1, sample);
    EXPECT_EQ(targets[0] == kIgnoreIndex, targets[1] == kIgnoreIndex);
    EXPECT_EQ(targets[0] == kIgnoreIndex, targets[2] == kIgnoreIndex);
    EXPECT_EQ(targets[3] == kIgnoreIndex, targets[4] == kIgnoreIndex);
    EXPECT_EQ(targets[6] == kIgnoreIndex, targets[7] == kIgnoreIndex);
    for (size_t i = 0; i < targets.size(); ++i)
      if (targets[i] != kIgnoreIndex) words.insert(i);
  }
  EXPECT_EQ(words.size(), text.size());
}

struct MaskedTextsTest : FolderTest {};

TEST_F(MaskedTextsTest, DifferByEpochAndNotByWorker) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "word" + std::to_string(i % 20) + " ";
  write("a.txt", text);
  const auto data = opened_for(
      Target::masked, "{train: {path: " + path("a.txt") + ", format: text}, text: {tokenizer: words, max_length: 50}}");
  EXPECT_EQ(data.train->size(), 9);  // 48 words fit between the tokens around
  const auto tokens_in = [&](int64_t epoch, bool augment) {
    return sample_of(*data.train, 3, {.seed = 7, .epoch = epoch, .augment = augment});
  };
  EXPECT_EQ(tokens_in(2, true), tokens_in(2, true));
  EXPECT_NE(tokens_in(2, true), tokens_in(3, true));
  EXPECT_EQ(tokens_in(2, false), tokens_in(3, false));
  EXPECT_THAT(error_of([&] { opened_for(Target::masked, "{train: {path: " + path("a.txt") + ", format: text}}"); },
                       ExitCode::usage),
              HasSubstr("no token for a mask"));
}

struct TaggedTextsTest : FolderTest {
  data::DatasetSplits tagged(const std::string& name, const std::string& format = "conll") const {
    return opened_for(Target::tags, "{train: {path: " + path(name) + ", format: " + format +
                                        "}, text: {tokenizer: words, min_count: 1}}");
  }
};

constexpr const char* kConll =
    "-DOCSTART- -X- O O\n\nMr NNP O B-PER\nO'Hara NNP O I-PER\nsleeps VBZ O O\n\nParis\tNNP\tB-LOC\r\n";

TEST_F(TaggedTextsTest, LearnTheFirstTokenOfAWord) {
  write("a.conll", kConll);
  const auto data = tagged("a.conll");
  EXPECT_EQ(data.train->size(), 2);
  EXPECT_THAT(data.train->class_names(), ElementsAre("B-LOC", "B-PER", "I-PER", "O"));
  const auto first = sample_of(*data.train, 0);
  EXPECT_THAT(first.at("tokens"), SizeIs(7));  // [CLS] mr o ' hara sleeps [SEP]
  EXPECT_THAT(first.at("target"), ElementsAre(-100, 1, 2, -100, -100, 3, -100));
  EXPECT_THAT(sample_of(*data.train, 1).at("target"), ElementsAre(-100, 0, -100));
}

TEST_F(TaggedTextsTest, AreTheSameAsLists) {
  write("a.conll", kConll);
  write("a.jsonl",
        "{\"tokens\": [\"Mr\", \"O'Hara\", \"sleeps\"], \"tags\": [\"B-PER\", \"I-PER\", \"O\"]}\n"
        "{\"tokens\": [\"Paris\"], \"tags\": [\"B-LOC\"]}\n");
  const auto lines = tagged("a.conll"), lists = tagged("a.jsonl", "jsonl");
  write("a.csv",
        "tokens,tags\n\"[\"\"Mr\"\", \"\"O'Hara\"\", \"\"sleeps\"\"]\",\"[\"\"B-PER\"\", \"\"I-PER\"\", \"\"O\"\"]\"\n"
        "\"[\"\"Paris\"\"]\",\"[\"\"B-LOC\"\"]\"\n");
  const auto cells = tagged("a.csv", "csv");
  for (const int64_t i : {0, 1}) {
    EXPECT_EQ(sample_of(*lines.train, i), sample_of(*lists.train, i));
    EXPECT_EQ(sample_of(*lines.train, i), sample_of(*cells.train, i));
  }
}

TEST_F(TaggedTextsTest, DoNotLearnWordsThatAPreparedListLeavesOut) {
  write("a.jsonl", R"({"tokens": ["Mr", "sleeps"], "tags": [-100, 1]})"
                   "\n"
                   R"({"tokens": ["Paris"], "tags": [0]})"
                   "\n");
  const auto data = tagged("a.jsonl", "jsonl");
  EXPECT_THAT(data.train->class_names(), ElementsAre("0", "1"));
  EXPECT_THAT(sample_of(*data.train, 0).at("target"), ElementsAre(-100, -100, 1, -100));
  write("b.jsonl", R"({"tokens": ["Mr", "sleeps"], "tags": [-100, -100]})");
  EXPECT_THAT(error_of([&] { tagged("b.jsonl", "jsonl"); }), HasSubstr("no word has a tag that is learned"));
}

TEST_F(TaggedTextsTest, HaveNoCommentsAmongTheirWords) {
  write("a.conll", "# sent_id = 1\n# text = a b\na X\n# O\n\n# id 52\tdomain=train\n# newdoc\nb X\n\n# O\nc O\n");
  const auto data = tagged("a.conll");
  EXPECT_EQ(data.train->size(), 3);
  EXPECT_THAT(data.train->class_names(), ElementsAre("O", "X"));
  EXPECT_THAT(sample_of(*data.train, 0).at("target"), SizeIs(4));  // [CLS] a # [SEP]
  EXPECT_THAT(sample_of(*data.train, 2).at("target"), SizeIs(4));  // a sentence may begin with the word #
  write("u.conll", "# text = a\n1\ta\ta\tNOUN\tNN\t_\t0\troot\t_\t_\n");
  EXPECT_THAT(error_of([&] { tagged("u.conll"); }), AllOf(HasSubstr("CoNLL-U"), HasSubstr("u.conll:2")));
}

TEST_F(LabelledTextsTest, TellFilesThatAreTrainedOnAndEvaluated) {
  write("all/train.csv", "text,label\na,x\nb,y\n");
  write("all/test.csv", "text,label\na b,x\n");
  const std::string told = warning_of([&] {
    opened_for(Target::label, "{train: {path: " + path("all") + ", format: csv}, val: {path: " +
                                  path("all/./test.csv") + "}, text: {tokenizer: words, min_count: 1}}");
  });
  EXPECT_THAT(told, AllOf(HasSubstr("data.val reads 1 file that data.train reads too"), HasSubstr("all/./test.csv")));
}

TEST_F(TaggedTextsTest, RefuseTagsThatDoNotFitTheWords) {
  write("a.conll", "a O\nb\n\nc O\n");
  EXPECT_THAT(error_of([&] { tagged("a.conll"); }),
              AllOf(HasSubstr("line 2 has a word without a tag"), HasSubstr(":1")));
  write("a.jsonl", "{\"tokens\": [\"a\", \"b\"], \"tags\": [\"O\"]}\n");
  EXPECT_THAT(error_of([&] { tagged("a.jsonl", "jsonl"); }),
              AllOf(HasSubstr("2 words with 1 tag"), HasSubstr("a.jsonl:1")));
}

TEST_F(TaggedTextsTest, RefuseFilesOfAnotherKindAndOtherBytes) {
  write("a.conll", std::string("PAR1\0\0\1 O\n", 11));
  EXPECT_THAT(error_of([&] { tagged("a.conll"); }), HasSubstr("a Parquet file, not words with tags"));
  write("a.conll", "a O\nb B-caf\xe9\n");
  EXPECT_THAT(error_of([&] { tagged("a.conll"); }), AllOf(HasSubstr("'tags' is not UTF-8"), HasSubstr("a.conll:1")));
}

TEST_F(TaggedTextsTest, CutLongTextsWithTheirTags) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "word" + std::to_string(i) + " " + (i % 2 == 0 ? "A" : "B") + "\n";
  write("a.conll", text);
  data::DatasetSplits data;
  const std::string warning = warning_of([&] {
    data = opened_for(Target::tags,
                      "{train: {path: " + path("a.conll") + ", format: conll}, text: {tokenizer: words, min_count: 1}}",
                      6);
  });
  EXPECT_THAT(warning, HasSubstr("last words are not learned"));
  EXPECT_THAT(sample_of(*data.train, 0).at("target"), ElementsAre(-100, 0, 1, 0, 1, -100));
}

}  // namespace
}  // namespace gputrain::records

#include "gputrain/data/signature.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

/// One of images, one of texts, one of numbers.
std::vector<Signature> some() {
  SampleLayout texts = SampleLayout::tokens(64, 259);
  texts.fields[0].ragged = texts.fields[1].ragged = true;
  texts.texts_in_row = 9;
  texts.longest_text = 32;
  return {{.gives = Target::labels,
           .layout = SampleLayout::images_with_numbers(28, 30, 3, 2),
           .class_names = {"cat", "\"dog\"\n"},
           .normalization = Normalization{.mean = {0.1, 0.2, 0.3}, .std = {1, 1, 0.125}}},
          {.gives = Target::next_token, .longest = 96, .layout = texts},
          {.gives = Target::pixels, .layout = SampleLayout::masked_images(8, 8, 1, 5)},
          {.gives = Target::label, .layout = SampleLayout::values({7}, at::kFloat, 3)}};
}

TEST(Signature, IsReadAsItWasWritten) {
  for (const Signature& known : some()) {
    const Signature read = Signature::from(known.text(), "model.json");
    EXPECT_EQ(read.text(), known.text());
    EXPECT_EQ(read.gives, known.gives);
    EXPECT_EQ(read.class_names, known.class_names);
    EXPECT_EQ(read.longest, known.longest);
    EXPECT_EQ(read.layout.bytes(), known.layout.bytes());
    EXPECT_EQ(read.layout.is_image(), known.layout.is_image());
    EXPECT_EQ(read.layout.token_count(), known.layout.token_count());
    EXPECT_EQ(read.layout.longest_text, known.layout.longest_text);
    EXPECT_EQ(read.layout.target()->sizes, known.layout.target()->sizes);
    ASSERT_EQ(read.normalization.has_value(), known.normalization.has_value());
    if (read.normalization) {
      EXPECT_EQ(read.normalization->std, known.normalization->std);
    }
  }
}

TEST(Signature, StandsForTheDataWithoutItsSamples) {
  const Signature known = some().front();
  const auto data = known.without_samples();
  EXPECT_EQ(data->size(), 0);
  EXPECT_EQ(data->class_names(), known.class_names);
  EXPECT_EQ(Signature::of(*data, {.target = Target::labels}).text(), known.text());
}

TEST(Signature, KnowsTheTargetsOfTasksThatAreThere) {
  std::string text = some()[1].text();
  text.replace(text.find("next_token"), 10, "mood");
  EXPECT_THROW(Signature::from(text, "model.json"), Error);
  constexpr Target kMood{"mood", "the mood of a text", "head: classifier"};
  Target::add(kMood);
  const Target read = Signature::from(text, "model.json").gives;
  EXPECT_EQ(read, kMood);
  EXPECT_EQ(read.model(), "head: classifier");
  Target::add(Target("mood", "something else"));
  EXPECT_EQ(Target::named("mood")->gives(), "the mood of a text");
  EXPECT_NE(Target::named("class"), Target::labels);
  EXPECT_EQ(Target::named("class"), Target::label);
}

TEST(Signature, RefusesImagesWithoutASpread) {
  const std::string good = some().front().text();
  for (const char* text : {"0.0", "-1.0", "null"}) {
    std::string bad = good;
    bad.replace(bad.find("0.125"), 5, text);
    EXPECT_THROW(Signature::from(bad, "model.json"), Error) << text;
  }
}

TEST(Signature, RefusesOtherText) {
  const std::string good = some()[1].text();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {std::string(), std::string("[]"), good.substr(0, good.size() / 2), with("\"schema\": 1", "\"schema\": 2"),
        with("next_token", "tea"), with("int64", "int63"), with("64", "-64"), with("259", "-259"), with("259", "\"a\""),
        with("\"fields\"", "\"field\""), with("64", ""), with("64", "6.5"), with("259", "2.7"), with("32", "-5"),
        with("259", "100000000000000"), with("\"class_names\": []", "\"class_names\": [\"a\"]")}) {
    try {
      Signature::from(text, "runs/a/model.json");
      ADD_FAILURE() << "read: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data) << text;
      EXPECT_EQ(error.parts().where, "runs/a/model.json");
    }
  }
}

}  // namespace
}  // namespace gputrain::data

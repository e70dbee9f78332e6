#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/config/load.hpp"

namespace gputrain::config {
namespace {

using testing::HasSubstr;

struct Values {
  int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  std::string text;
  Length length;
  Duration duration;
  std::vector<double> numbers;
  std::vector<std::string> texts;
  static void describe(Description<Values>& d) {
    d.key("integer", &Values::integer, "an integer");
    d.key("number", &Values::number, "a number");
    d.key("boolean", &Values::boolean, "a boolean");
    d.key("text", &Values::text, "a text");
    d.key("length", &Values::length, "a length");
    d.key("duration", &Values::duration, "a duration");
    d.key("numbers", &Values::numbers, "numbers");
    d.key("texts", &Values::texts, "texts");
  }
};

Values values_of(const std::string& text) { return load(schema_of<Values>(), {.text = text}).as<Values>(); }

std::string value_refusal(const std::string& text) {
  try {
    values_of(text);
    return "accepted";
  } catch (const SpecError& error) {
    return error.what();
  }
}

struct Said {
  std::string by = "user", what;
  static void describe(Description<Said>& d) {
    d.key("by", &Said::by, "who");
    d.key("what", &Said::what, "what").required();
  }
};
struct Talks {
  std::vector<OneOrMore<Said>> talks;
  static void describe(Description<Talks>& d) { d.key("talks", &Talks::talks, "talks"); }
};

TEST(GroupValue, MayBeATextWhereOneElementNeedsNoBrackets) {
  const auto talks_of = [](const std::string& text) {
    std::string all;
    const Talks read = load(schema_of<Talks>(), {.text = text}).as<Talks>();
    for (const auto& talk : read.talks) {
      for (const Said& one : talk.values) all += one.by + "=" + one.what + " ";
      all += "| ";
    }
    return all;
  };
  const std::string text = "talks: [hi, [{by: me, what: 1}, {what: yes}], {what: '{x}'}]";
  EXPECT_EQ(talks_of(text), "user=hi | me=1 user=yes | user={x} | ");
  EXPECT_EQ(talks_of(load(schema_of<Talks>(), {.text = text}).resolved_yaml()), talks_of(text));
  for (const auto& [wrong, what] :
       {std::pair("talks: hi", "talks must be a list of values, each text, a group of keys"),
        {"talks: [[{by: me}]]", "the key 'talks[0][0].what' is missing"},
        {"talks: [{whom: me, what: x}]", "whom"}}) {
    try {
      talks_of(wrong);
      ADD_FAILURE() << wrong;
    } catch (const SpecError& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  }
}

TEST(IntegerValue, FollowsYamlCoreSchema) {
  EXPECT_EQ(values_of("integer: +12").integer, 12);
  EXPECT_EQ(values_of("integer: -12").integer, -12);
  EXPECT_EQ(values_of("integer: 0x1F").integer, 31);
  EXPECT_EQ(values_of("integer: 0o17").integer, 15);
  EXPECT_EQ(values_of("integer: 9223372036854775807").integer, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(values_of("integer: -9223372036854775808").integer, std::numeric_limits<int64_t>::min());
  EXPECT_THAT(value_refusal("integer: 9223372036854775808"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(value_refusal("integer: 0xFFFFFFFFFFFFFFFFF"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(value_refusal("integer: 010"), HasSubstr("starts with a zero"));
  for (const char* text : {"1_000", "0b11", "1,000", "12:30", "1k", "yes", "0x", "0o8", "--1"}) {
    EXPECT_THAT(value_refusal(std::string("integer: ") + text), HasSubstr("must be a whole number")) << text;
  }
  EXPECT_THAT(value_refusal("integer: 1e3"), HasSubstr("write `1000`"));
  EXPECT_THAT(value_refusal("integer: 2.0"), HasSubstr("write `2`"));
}

TEST(NumberValue, FollowsYamlCoreSchema) {
  EXPECT_EQ(values_of("number: 1e-3").number, 1e-3);
  EXPECT_EQ(values_of("number: 3.0517578125e-5").number, 3.0517578125e-5);
  EXPECT_EQ(values_of("number: .5").number, 0.5);
  EXPECT_EQ(values_of("number: 5.").number, 5.0);
  EXPECT_EQ(values_of("number: +1E+2").number, 100.0);
  EXPECT_EQ(values_of("number: -7").number, -7.0);
  EXPECT_EQ(values_of("number: 0x10").number, 16.0);
  EXPECT_THAT(value_refusal("number: 1e400"), HasSubstr("beyond what a 64-bit float can hold"));
  for (const char* text : {".inf", "-.inf", ".nan"}) {
    EXPECT_THAT(value_refusal(std::string("number: ") + text), HasSubstr("not a finite number")) << text;
  }
  for (const char* text : {"nan", "inf", "1e", "e5", ".", "1_0.5", "0.1f", "1/3"}) {
    EXPECT_THAT(value_refusal(std::string("number: ") + text), HasSubstr("must be a number")) << text;
  }
}

TEST(BooleanValue, IsOnlyTrueOrFalse) {
  EXPECT_TRUE(values_of("boolean: true").boolean);
  EXPECT_TRUE(values_of("boolean: True").boolean);
  EXPECT_FALSE(values_of("boolean: FALSE").boolean);
  EXPECT_THAT(value_refusal("boolean: yes"), HasSubstr("must be true or false, not 'yes'"));
  EXPECT_THAT(value_refusal("boolean: off"), HasSubstr("write `false`"));
  EXPECT_THAT(value_refusal("boolean: 1"), HasSubstr("write `true`"));
}

TEST(TextValue, IsTakenAsWritten) {
  EXPECT_EQ(values_of("text: 1.10").text, "1.10");
  EXPECT_EQ(values_of("text: no").text, "no");
  EXPECT_EQ(values_of("text: \"null\"").text, "null");
  EXPECT_EQ(values_of("text: !!str null").text, "null");
  EXPECT_EQ(values_of("text: |\n  two\n  lines\n").text, "two\nlines\n");
  EXPECT_EQ(values_of("text: \"\\u00fc \\x41\"").text, "\u00fc A");
  EXPECT_EQ(values_of("\xef\xbb\xbftext: after a byte order mark").text, "after a byte order mark");
  EXPECT_EQ(values_of("text: windows\r\ninteger: 3\r\n").integer, 3);
}

TEST(TextValue, MayHaveAnyCharacterInQuotes) {
  EXPECT_EQ(values_of("text: \"a\u00a0b\"").text, "a\u00a0b");
  EXPECT_EQ(values_of("text: '\u201cx\u201d\u200b'").text, "\u201cx\u201d\u200b");
  EXPECT_EQ(values_of("text: |\n  a\u00a0b\n").text, "a\u00a0b\n");
  EXPECT_EQ(values_of("text: a  # b\u00a0\uff1a").text, "a");
  for (const std::string text : {"gr\u00f6\u00dfe", "It\u2019s \u201cx\u201d", "\u4f60\u597d\uff0c\u4e16\u754c\uff01"})
    EXPECT_EQ(values_of("text: " + text).text, text);
  EXPECT_THAT(value_refusal("text: a\u00a0b"), HasSubstr("job:1:8: an invisible character, U+00A0"));
  EXPECT_THAT(value_refusal("text: \u2018a\u2019"), HasSubstr("U+2018 (a curly quote)"));
}

TEST(TextValue, MayFollowAByteOrderMark) {
  EXPECT_EQ(values_of("\xef\xbb\xbftext: a").text, "a");
  EXPECT_EQ(values_of("\xef\xbb\xbf{\"integer\": 1, \"text\": a}").text, "a");
  EXPECT_THAT(value_refusal("\xef\xbb\xbfinteger: x"), HasSubstr("job:1:10: integer must be a whole number"));
  EXPECT_THAT(value_refusal("text: a\n\xef\xbb\xbfinteger: 1"), HasSubstr("U+FEFF (a byte order mark)"));
}

TEST(WrongValue, NamesCharacterBeyondAscii) {
  EXPECT_THAT(value_refusal("number: 1e\u22124"), HasSubstr("'\u2212' is U+2212, no ASCII character"));
  EXPECT_THAT(value_refusal("integer: \uff13"), HasSubstr("'\uff13' is U+FF13 (a full-width '3')"));
  EXPECT_THAT(value_refusal("t\u0435xt: a"), HasSubstr("'\u0435' is U+0435, no ASCII character"));
}

TEST(LengthValue, HasAUnit) {
  using Unit = Length::Unit;
  EXPECT_EQ(values_of("length: 500").length, (Length{500, Unit::steps}));
  EXPECT_EQ(values_of("length: 5ep").length, (Length{5, Unit::epochs}));
  EXPECT_EQ(values_of("length: 0.5ep").length, (Length{0.5, Unit::epochs}));
  EXPECT_EQ(values_of("length: .5ep").length, (Length{0.5, Unit::epochs}));
  EXPECT_EQ(values_of("length: 10%").length, (Length{10, Unit::percent}));
  EXPECT_EQ(values_of("length: 2Btok").length, (Length{2e9, Unit::tokens}));
  EXPECT_EQ(values_of("length: 1.3Mtok").length, (Length{1.3e6, Unit::tokens}));
  EXPECT_EQ(values_of("length: 500ktok").length, (Length{5e5, Unit::tokens}));
  EXPECT_EQ(values_of("length: 7tok").length, (Length{7, Unit::tokens}));
  EXPECT_EQ(values_of("length: 30m").length, (Length{1800, Unit::seconds}));
  EXPECT_EQ(values_of("length: 1h30m").length, (Length{5400, Unit::seconds}));
}

TEST(LengthValue, SuggestsRightUnit) {
  EXPECT_THAT(value_refusal("length: 5 epochs"), HasSubstr("write `5ep`"));
  EXPECT_THAT(value_refusal("length: 100 steps"), HasSubstr("write `100`"));
  EXPECT_THAT(value_refusal("length: 2B"), HasSubstr("write `2Btok` for tokens"));
  EXPECT_THAT(value_refusal("length: 10k"), HasSubstr("write `10000` for steps, `10ktok` for tokens"));
  EXPECT_THAT(value_refusal("length: 30min"), HasSubstr("write `30m`"));
  EXPECT_THAT(value_refusal("length: 2.5"), HasSubstr("for epochs write `2.5ep`"));
  EXPECT_THAT(value_refusal("length: 101%"), HasSubstr("more than 100%"));
  for (const char* text : {"-5", "-.5ep", "ep", "5m1h", "1e300", "5epp", "2Gtok", "auto", "1h1h", "0x10"}) {
    EXPECT_THAT(value_refusal(std::string("length: ") + text), HasSubstr("length")) << text;
  }
}

TEST(LengthValue, PrintsTextThatReadsBack) {
  for (const char* text : {"500", "5ep", "0.5ep", "10%", "2Btok", "524288tok", "1500ktok", "30m", "1h30m", "1d",
                           "1m30s", "0", "0s", "0.25s"}) {
    EXPECT_EQ(to_string(values_of(std::string("length: ") + text).length), text);
  }
}

TEST(DurationValue, CountsSecondsWithoutUnit) {
  EXPECT_EQ(values_of("duration: 90").duration.seconds, 90);
  EXPECT_EQ(values_of("duration: 1.5").duration.seconds, 1.5);
  EXPECT_EQ(values_of("duration: 2d").duration.seconds, 172800);
  EXPECT_EQ(values_of("duration: 1h2m3s").duration.seconds, 3723);
  EXPECT_THAT(value_refusal("duration: 10 minutes"),
              HasSubstr("must be a duration (90s, 30m, 1h30m), not '10 minutes'"));
  EXPECT_THAT(value_refusal("duration: -5"), HasSubstr("must be a duration"));
  EXPECT_EQ(values_of("duration: 36500d").duration.seconds, 3'153'600'000);
  EXPECT_THAT(value_refusal("duration: 999999d"), HasSubstr("'999999d' is more than 100 years"));
  EXPECT_THAT(value_refusal("duration: 9e12"), HasSubstr("'9e12' is more than 100 years"));
}

/// A random value, biased towards values that are hard to print.
Values random_values(std::mt19937_64& random) {
  Values values;
  values.integer = static_cast<int64_t>(random());
  do {
    const uint64_t bits = random();
    std::memcpy(&values.number, &bits, sizeof(bits));
  } while (!std::isfinite(values.number));
  values.boolean = random() % 2 == 0;
  const std::vector<std::string> pieces{"a",  "yes", "1",  "1e5", "-", ": ", " #",   "\"",     "'",    "\\",
                                        "\n", "\t",  "${", "$",   "}", "~",  "null", "\u00fc", "\x01", " ",
                                        ",",  "[",   "{",  "&",   "*", "!",  "%",    "<<"};
  for (uint64_t i = random() % 5; i > 0; --i) values.text += pieces[random() % pieces.size()];
  values.length = {static_cast<double>(random() % 1000000), static_cast<Length::Unit>(random() % 5)};
  if (values.length.unit == Length::Unit::percent) values.length.value = static_cast<double>(random() % 1000) / 10;
  values.duration.seconds = static_cast<double>(random() % 100000000) / (random() % 2 == 0 ? 1 : 1000);
  for (uint64_t i = random() % 4; i > 0; --i) values.numbers.push_back(1.0 / static_cast<double>(random() % 97 + 1));
  for (uint64_t i = random() % 4; i > 0; --i) values.texts.push_back(pieces[random() % pieces.size()]);
  return values;
}

TEST(ResolvedValues, ReadBackExactly) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 3000; ++i) {
    const Values before = random_values(random);
    const std::string yaml = to_yaml(schema_of<Values>(), &before);
    const Values after = values_of(yaml);
    ASSERT_EQ(after.integer, before.integer) << yaml;
    ASSERT_EQ(after.number, before.number) << yaml;
    ASSERT_EQ(after.boolean, before.boolean) << yaml;
    ASSERT_EQ(after.text, before.text) << yaml;
    ASSERT_EQ(after.length, before.length) << yaml;
    ASSERT_EQ(after.duration, before.duration) << yaml;
    ASSERT_EQ(after.numbers, before.numbers) << yaml;
    ASSERT_EQ(after.texts, before.texts) << yaml;
  }
}

}  // namespace
}  // namespace gputrain::config

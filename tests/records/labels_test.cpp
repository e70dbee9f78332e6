// Labels as people write them.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/records/labels.hpp"
#include "datasets/opened.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Json = nlohmann::ordered_json;
using Names = std::vector<std::string>;

/// The labels of a split, with the reader that has looked at all of them.
struct Labels {
  Labels(std::initializer_list<Json> all, bool are_sets, const Names& known)
      : values(all), reader(pointers(), are_sets, known) {}

  std::vector<const Json*> pointers() const {
    std::vector<const Json*> all;
    for (const Json& value : values) all.push_back(&value);
    return all;
  }
  Names operator[](size_t i) const { return reader.classes_in(values[i]); }

  std::vector<Json> values;
  LabelReader reader;
};

Labels sets(std::initializer_list<Json> all, const Names& known = {}) { return Labels(all, true, known); }
Labels single(std::initializer_list<Json> all, const Names& known = {}) { return Labels(all, false, known); }

TEST(Labels, AreSetsBetweenBarsCommasOrSemicolons) {
  const Labels bars = sets({"red|small, round", " red ", ""});
  EXPECT_THAT(bars[0], ElementsAre("red", "small, round"));
  EXPECT_THAT(bars[1], ElementsAre("red"));
  EXPECT_THAT(bars[2], IsEmpty());
  const Labels commas = sets({"red,small", "red", "small, red"});
  EXPECT_THAT(commas[0], ElementsAre("red", "small"));
  EXPECT_THAT(commas[2], ElementsAre("small", "red"));
  EXPECT_THAT(warning_of([&] { commas.reader.warn("x.csv"); }),
              AllOf(HasSubstr("x.csv: commas"), HasSubstr("red,small")));
  const Labels semicolons = sets({"red", "small; red, dark"});
  EXPECT_THAT(semicolons[1], ElementsAre("small", "red, dark"));
  EXPECT_THAT(warning_of([&] { semicolons.reader.warn("x.csv"); }), HasSubstr("semicolons"));
  EXPECT_THAT(warning_of([&] { bars.reader.warn("x.csv"); }), IsEmpty());
  EXPECT_THAT(error_of([] { sets({"red,,small"})[0]; }), HasSubstr("without a name"));
}

TEST(Labels, AreSetsInLists) {
  const Labels lists =
      sets({"[\"red\", \"small, round\"]", "['red']", "{'small', 'red'}", "[]", Json::array({"red", 3})});
  EXPECT_THAT(lists[0], ElementsAre("red", "small, round"));
  EXPECT_THAT(lists[1], ElementsAre("red"));
  EXPECT_THAT(lists[2], ElementsAre("small", "red"));
  EXPECT_THAT(lists[3], IsEmpty());
  EXPECT_THAT(lists[4], ElementsAre("red", "3"));
  EXPECT_THAT(error_of([] { sets({"[0 1 1]"})[0]; }), AllOf(HasSubstr("in brackets"), HasSubstr("joy|surprise")));
}

TEST(Labels, OfOtherDataKeepTheNamesOfTrainingData) {
  const Names known{"Bell pepper, red", "Leaf"};
  const Labels labels = sets({"Bell pepper, red", "Leaf", "Leaf,Bell pepper"}, known);
  EXPECT_THAT(labels[0], ElementsAre("Bell pepper, red"));
  EXPECT_THAT(labels[2], ElementsAre("Leaf", "Bell pepper"));
}

TEST(Labels, OfZerosAndOnesHaveAPlaceForEachClass) {
  const Labels rows = sets({Json::array({0, 1, 1}), Json::array({1, 0, 0}), Json::array({0, 0, 0})});
  EXPECT_THAT(rows.reader.places(), ElementsAre("0", "1", "2"));
  EXPECT_THAT(rows[0], ElementsAre("1", "2"));
  EXPECT_THAT(rows[2], IsEmpty());
  const Labels texts = sets({"[0.0, 1.0]", "1,0", "[true, false]"});
  EXPECT_THAT(texts[0], ElementsAre("1"));
  EXPECT_THAT(texts[1], ElementsAre("0"));
  EXPECT_THAT(texts[2], ElementsAre("0"));
  EXPECT_THAT(error_of([] {
                sets({Json::array({1, 1, 0}), Json::array({1, 0})})[1];
              }),
              HasSubstr("2 places instead of 3"));
  EXPECT_THAT(error_of([] {
                sets({Json::array({1, 1, 0, 0})}, {"0", "1", "2"})[0];
              }),
              HasSubstr("4 places instead of 3"));
  const Labels numbers = sets({Json::array({0, 1}), Json::array({1}), Json::array({2})});
  EXPECT_THAT(numbers[0], ElementsAre("0", "1"));
  EXPECT_THAT(numbers.reader.places(), IsEmpty());
  EXPECT_THAT(sets({Json::array({0}), Json::array({1})})[1], ElementsAre("1"));
}

TEST(Labels, ThatAreListsWithinListsHaveALimit) {
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  EXPECT_THAT(error_of([&] { sets({deep})[0]; }), HasSubstr("no JSON list"));
}

TEST(Labels, ThatAreNumbersMayHaveASign) {
  EXPECT_EQ(number_in("+1.5"), 1.5);
  EXPECT_EQ(number_in("-2"), -2);
  for (const char* wrong : {"+", "+-1", "++1", "1+"}) EXPECT_THROW(number_in(wrong), Error) << wrong;
}

TEST(Labels, ThatAreWholeNumbersHaveNoPoint) {
  const Labels numbers = single({"12.0", "3", 4.0, "-1.00"});
  EXPECT_THAT(numbers[0], ElementsAre("12"));
  EXPECT_THAT(numbers[2], ElementsAre("4"));
  EXPECT_THAT(numbers[3], ElementsAre("-1"));
  const Labels versions = single({"1.0", "1.5"});
  EXPECT_THAT(versions[0], ElementsAre("1.0"));
  EXPECT_THAT(single({"12.0"}, {"12", "13"})[0], ElementsAre("12"));
  EXPECT_THAT(single({"1.0"}, {"1.0", "1.5"})[0], ElementsAre("1.0"));
  EXPECT_THAT(sets({"2.0|12"})[0], ElementsAre("2", "12"));
}

TEST(Labels, MayBeColumnsOfZerosAndOnes) {
  const Json a = Json::parse(R"({"red": 1, "small": "0", "round": "True"})");
  const Json b = Json::parse(R"({"red": false, "small": "1.0", "round": 0.0})");
  const RecordClasses several({&a, &b}, {"red", "small", "round"}, true, {}, "hint");
  EXPECT_THAT(several.in(a), ElementsAre("red", "round"));
  EXPECT_THAT(several.in(b), ElementsAre("small"));
  EXPECT_THAT(several.fixed(), ElementsAre("red", "small", "round"));
  const RecordClasses one({&a, &b}, {"red", "small", "round"}, false, {}, "hint");
  EXPECT_THAT(one.in(b), ElementsAre("small"));
  EXPECT_THAT(error_of([&] { one.in(a); }), HasSubstr("2 of the columns of classes are 1"));
  for (const char* wrong : {"\"\"", "2", "-1", "\"yes\""}) {
    const Json record = Json::parse(std::string(R"({"red": 1, "small": 0, "round": )") + wrong + "}");
    EXPECT_THAT(error_of([&] { several.in(record); }), HasSubstr("'round' is neither 0 nor 1"));
  }
  EXPECT_THAT(error_of([&] { several.in(Json::parse(R"({"red": 1})")); }), HasSubstr("no 'small'; there are red"));
  EXPECT_THAT(error_of([&] { several.in(Json::parse(R"({"red": null})")); }), HasSubstr("'red' is null"));
}

TEST(Labels, ThatDifferInCaseOrSpacesAreTold) {
  EXPECT_THAT(warning_of([] {
                warn_of_similar({"Dog", "cat", "dog", "hot  dog", "hot dog"}, "x.csv");
              }),
              AllOf(HasSubstr("'Dog' and 'dog' differ only in case"), HasSubstr("'hot  dog' and 'hot dog'")));
  EXPECT_THAT(warning_of([] { warn_of_similar({"dog", "cat", "do g"}, "x.csv"); }), IsEmpty());
}

}  // namespace
}  // namespace gputrain::records

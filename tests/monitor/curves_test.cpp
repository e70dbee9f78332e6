#include "gputrain/monitor/curves.hpp"

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/base64.hpp"

namespace gputrain::monitor {
namespace {

using testing::ElementsAre;

template <class Number>
std::vector<Number> unpacked(const nlohmann::ordered_json& text) {
  const std::string bytes = *from_base64(text.get<std::string>());
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

TEST(Curves, AreReadFromLinesOfEveryKind) {
  const std::string path = testing::TempDir() + "curves.jsonl";
  std::ofstream(path) << R"({"time":5,"step":1,"epoch":0.1,"kind":"train","train/loss":2.5,"train/lr":0.1})"
                      << "\n[]\n"
                      << R"({"time":6,"step":"2","train/loss":7})"
                      << "\n"
                      << R"({"time":8,"step":2,"kind":"train","train/loss":null,"train/lr":0.2})"
                      << "\n"
                      << R"({"time":9,"step":2,"kind":"eval","val/loss":3})"
                      << "\n{\"time\":9,";
  Curves curves;
  curves.read(path);
  EXPECT_EQ(curves.by_metric().size(), 3U);
  EXPECT_EQ(curves.first_time(), 5);
  EXPECT_EQ(curves.last_time(), 9);
  EXPECT_EQ(curves.last_step(), 2);
  const auto json = curves.json();
  EXPECT_EQ(json["steps"].size(), 2U) << "train/loss and train/lr have the same steps";
  const auto& loss = json["metrics"]["train/loss"];
  EXPECT_THAT(unpacked<uint32_t>(json["steps"][loss["steps"].get<size_t>()]), ElementsAre(1, 2));
  const auto values = unpacked<float>(loss["values"]);
  EXPECT_EQ(values.at(0), 2.5F);
  EXPECT_TRUE(std::isnan(values.at(1)));
}

TEST(Curves, BeginAnewWhereTheRunWentBack) {
  Curves curves;
  for (const int64_t step : {10, 20, 30, 20, 25}) curves.add(step, "train/loss", static_cast<double>(step));
  EXPECT_THAT(curves.by_metric().at("train/loss").steps, ElementsAre(10, 20, 25));
}

TEST(Curves, HaveABestPoint) {
  const Curve curve{.steps = {1, 2, 3, 4}, .values = {std::nan(""), 3, 1, 1}};
  EXPECT_EQ(curve.best(/*smaller_is_better=*/true)->step, 3);
  EXPECT_EQ(curve.best(/*smaller_is_better=*/false)->value, 3);
  EXPECT_FALSE((Curve{.steps = {1}, .values = {std::nan("")}}.best(true)));
}

TEST(Curves, KeepPeaksWhenTheyAreThinnedOut) {
  Curves curves;
  for (int64_t step = 0; step < 10'000; ++step)
    curves.add(step, "train/loss", step == 7'654 ? 99.0 : 1.0 / static_cast<double>(1 + step));
  curves.add(1, "train/lr", 1);
  curves.thin(100);
  const Curve& loss = curves.by_metric().at("train/loss");
  EXPECT_LE(loss.steps.size(), 100U);
  EXPECT_TRUE(std::ranges::is_sorted(loss.steps));
  EXPECT_EQ(loss.best(/*smaller_is_better=*/false)->step, 7'654);
  curves.keep({"train/lr"});
  EXPECT_EQ(curves.by_metric().size(), 1U);
}

}  // namespace
}  // namespace gputrain::monitor

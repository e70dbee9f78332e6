// What trackers get of a run: texts, pictures, the loss scale, where the time has gone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../../src/run/evaluation_pictures.hpp"
#include "gputrain/core/base64.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/data/png.hpp"
#include "support/program.hpp"
#include "support/python_reference.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::gputrain::testing::run_reference;
using nlohmann::json;
using ::testing::HasSubstr;

class TrackedRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    GPUTRAIN_NEED_REFERENCE("tensorboard");
    GPUTRAIN_NEED_REFERENCE("safetensors");
    GPUTRAIN_NEED_REFERENCE("PIL");
  }

  Result run(const std::string& name, const std::vector<std::string>& settings = {}) const {
    std::vector<std::string> arguments{"run", job_, "--output-dir", folder_ / name};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return gputrain(arguments);
  }
  /// What a script of tests/monitor finds in a file or folder of a run.
  json found(const std::string& script, const std::string& path) const {
    EXPECT_TRUE(run_reference("monitor/" + script, {folder_ / path, folder_ / "found.json"}));
    return json::parse(read_file(folder_ / "found.json"));
  }
  static std::vector<int64_t> steps_of(const json& points) {
    std::vector<int64_t> steps;
    for (const json& point : points) steps.push_back(point.is_array() ? point[0] : point["step"]);
    return steps;
  }

  const TemporaryFolder folder_;
  std::string job_;
};

class TrackedJob : public TrackedRuns {
 protected:
  TrackedJob() {
    job_ = write_gpt_job(folder_,
                         "log: {interval: 1, tensorboard: true}\ncheckpoint: {interval: 10}\n"
                         "eval: {interval: 10, sample: {prompt: the, max_new_tokens: 5, interval: 10}}\n");
  }
};

/// Grey images of bars, whose direction is their class.
class TrackedImages : public TrackedRuns {
 protected:
  static constexpr int64_t kSide = 28;

  TrackedImages() {
    for (const auto& [split, count] : {std::pair("train", 32), {"val", 12}})
      for (int i = 0; i < count; ++i) write_bar(std::string(split), i);
    job_ = folder_.write(
        "job.yaml",
        fmt::format("schema: 1\nseed: 3\ndevice: cpu\nmodel: {{type: mlp, config: {{hidden: [8]}}}}\n"
                    "data: {{train: {{format: imagefolder, path: {0}/train}}, val: {{path: {0}/val}}}}\n"
                    "train: {{max_steps: 20, global_batch_size: 8}}\noptimizer: {{type: adamw, lr: 0.001}}\n"
                    "eval: {{interval: 10}}\nlog: {{interval: 1, tensorboard: true}}\ncheckpoint: {{interval: 10}}\n",
                    folder_.path().string()));
  }

  void write_bar(const std::string& split, int number) {
    const bool is_upright = number % 2 == 0;
    std::vector<uint8_t> pixels;
    for (int64_t i = 0; i < kSide * kSide; ++i)
      pixels.push_back((is_upright ? i % kSide : i / kSide) == 4 + number / 2 ? 255
                                                                              : static_cast<uint8_t>(20 + number));
    folder_.write(fmt::format("{}/{}/{:02}.png", split, is_upright ? "upright" : "level", number),
                  data::png_of({.pixels = pixels.data(), .width = kSide, .height = kSide, .channels = 1}));
  }
};

TEST_F(TrackedJob, ShowsTheTextsThatTheModelWrites) {
  const Result result = run("run");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json shown = found("tensorboard_reference.py", "run/tb");
  EXPECT_THAT(steps_of(shown["texts"]["sample"]), ::testing::ElementsAre(10, 20));
  const std::string last = shown["texts"]["sample"][1][1];
  EXPECT_EQ(last.substr(0, 7), "    the");
  EXPECT_THAT(result.out, HasSubstr(last.substr(4, last.find('\n', 4) - 4)));
}

TEST_F(TrackedJob, TellsTheLossScale) {
  const Result result = run("run", {"precision=fp16", "log.wandb={mode: offline}"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto scales = values(folder_ / "run/metrics.jsonl", "train/loss_scale");
  EXPECT_EQ(scales.size(), 20U);
  EXPECT_EQ(std::exp2(std::round(std::log2(scales.back()))), scales.back());
  const json shown = found("tensorboard_reference.py", "run/tb");
  EXPECT_EQ(shown["scalars"]["train/loss_scale"].back(), json({20, scales.back()}));
}

TEST_F(TrackedJob, IsShownOnceAfterAResume) {
  ASSERT_EQ(run("whole").exit_code, 0);
  copy_without_the_end(folder_ / "whole", folder_ / "cut");
  ASSERT_EQ(run("cut").exit_code, 0);
  const json whole = found("tensorboard_reference.py", "whole/tb"), cut = found("tensorboard_reference.py", "cut/tb");
  EXPECT_EQ(cut["scalars"]["train/loss"].size(), 20U);
  EXPECT_EQ(cut["scalars"]["train/loss"], whole["scalars"]["train/loss"]);
  EXPECT_EQ(cut["texts"]["sample"], whole["texts"]["sample"]);

  // Nothing is left to train: nothing is shown twice.
  ASSERT_EQ(run("cut").exit_code, 0);
  EXPECT_EQ(found("tensorboard_reference.py", "cut/tb")["texts"]["sample"], whole["texts"]["sample"]);
}

TEST_F(TrackedJob, TellsWhereTheTimeHasGone) {
  ASSERT_EQ(run("run").exit_code, 0);
  const std::string metrics = folder_ / "run/metrics.jsonl";
  for (const char* part : {"train", "eval", "save"}) {
    const auto seconds = values(metrics, "time/" + std::string(part) + "_seconds_total");
    EXPECT_TRUE(std::ranges::is_sorted(seconds));
    EXPECT_GT(seconds.back(), 0) << part;
  }
  const std::string report = read_file(folder_ / "run/report.html");
  for (const char* part : {"steps", "evaluations", "saves"})
    EXPECT_THAT(report, HasSubstr("[\"" + std::string(part) + "\","));
}

TEST_F(TrackedImages, ShowTheWorstOfEachEvaluation) {
  const Result result = run("run");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json shown = found("tensorboard_reference.py", "run/tb"), sheets = shown["images"]["val/worst"];
  EXPECT_THAT(steps_of(sheets), ::testing::ElementsAre(10, 20));
  EXPECT_NE(sheets[0][1]["rgb"], sheets[1][1]["rgb"]);
  const int64_t width = 8 + 4 * 168, height = 8 + 2 * (5 * kSide + 4 + 3 * 22 + 8);
  ASSERT_EQ(sheets[1][1]["size"], json({width, height}));
  // The image of each sample, five times as large, and its class in the caption.
  const std::string rgb = *from_base64(sheets[1][1]["rgb"].get<std::string>());
  const std::string caption = shown["texts"]["val/worst/caption"][1][1];
  const json details = json::parse(read_file(folder_ / "run/evaluation.json"));
  for (int64_t i = 0; i < 8; ++i) {
    const json& sample = details["worst"][static_cast<size_t>(i)];
    const std::string png = *from_base64(sample["png"].get<std::string>());
    data::ImageDecoder decoder;
    decoder.open(std::as_bytes(std::span(png)), "sample");
    const uint8_t* pixels = decoder.decode(3).pixels;
    const int64_t left = 8 + i % 4 * 168, top = 8 + i / 4 * (height - 8) / 2;
    for (int64_t pixel = 0; pixel < kSide * kSide; ++pixel) {
      const int64_t place = (top + pixel / kSide * 5 + 4) * width + left + pixel % kSide * 5;
      ASSERT_EQ(static_cast<uint8_t>(rgb.at(static_cast<size_t>(3 * place))), pixels[3 * pixel]) << i << " " << pixel;
    }
    const auto name = [&](const char* key) { return details["classes"][sample[key].get<size_t>()].get<std::string>(); };
    EXPECT_THAT(caption, HasSubstr(fmt::format("    {}. {} → {}, loss ", i + 1, name("target"), name("guess"))));
  }
}

TEST_F(TrackedImages, AreShownOnceAfterAResume) {
  ASSERT_EQ(run("whole").exit_code, 0);
  copy_without_the_end(folder_ / "whole", folder_ / "cut");
  ASSERT_EQ(run("cut").exit_code, 0);
  const json whole = found("tensorboard_reference.py", "whole/tb")["images"];
  EXPECT_EQ(whole["val/worst"].size(), 2U);
  EXPECT_EQ(found("tensorboard_reference.py", "cut/tb")["images"], whole);
}

TEST_F(TrackedImages, AreSentNowhereIfTheJobSaysSo) {
  ASSERT_EQ(run("run", {"log.pictures=false"}).exit_code, 0);
  const json shown = found("tensorboard_reference.py", "run/tb");
  EXPECT_TRUE(shown["images"].empty());
  EXPECT_EQ(shown["scalars"]["val/loss"].size(), 2U);
}

TEST(EvaluationPictures, HaveNumbersForNamesThatCannotBeDrawn) {
  const std::vector<uint8_t> grey(16, 99);
  const std::string png = to_base64(data::png_of({.pixels = grey.data(), .width = 4, .height = 4, .channels = 1}));
  const auto picture = [&](const std::string& first, const nlohmann::ordered_json& image) {
    nlohmann::ordered_json details{{"split", "val"}};
    details["classes"] = std::vector<std::string>{first, "dog"};
    const nlohmann::ordered_json sample{{"position", 7}, {"name", ""},           {"target", 0},
                                        {"guess", 1},    {"loss", std::nan("")}, {"png", image}};
    details["worst"].push_back(sample);
    const auto pictures = app::evaluation_pictures(details);
    EXPECT_EQ(pictures.size(), 1U);
    return pictures.at(0);
  };
  EXPECT_EQ(picture("猫", png).caption, "1. 猫 → dog, loss nan, sample 7");
  EXPECT_EQ(*picture("猫", png).png, *picture("0", png).png);
  EXPECT_NE(*picture("cat", png).png, *picture("0", png).png);
  EXPECT_NE(*picture("cat", nullptr).png, *picture("cat", png).png) << "a sample that cannot be read any more";
}

}  // namespace
}  // namespace gputrain::testing_support

// A model that labels pixels, from made-up shapes to the masks that it predicts.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/base64.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/png.hpp"
#include "support/python_reference.hpp"
#include "support/rank_runs.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kHeight = 40, kWidth = 48, kClasses = 4, kTrain = 96, kVal = 25;
constexpr uint8_t kIgnored = 255;

struct Shape {
  int64_t label = 0;  // 1: circle, 2: square, 3: triangle
  double x = 0, y = 0, radius = 0;

  bool covers(double column, double row) const {
    const double across = std::abs(column - x), down = row - y;
    if (label == 1) return across * across + down * down <= radius * radius;
    if (label == 2) return across <= radius && std::abs(down) <= radius;
    return down >= -radius && down <= radius && across <= (down + radius) / 2;
  }
};

/// Noise with one shape of any brightness, in front of another shade. The shape alone tells the class.
void write_shape(const fs::path& folder, uint64_t number) {
  RandomStream random(number, 1);
  const double radius = random.uniform(7, 12);
  const Shape shape{.label = 1 + random.below(3),
                    .x = random.uniform(radius, kWidth - radius),
                    .y = random.uniform(radius, kHeight - radius),
                    .radius = radius};
  const bool is_dark = random.uniform() < 0.5;
  const double inside = is_dark ? random.uniform(0, 70) : random.uniform(150, 200), outside = random.uniform(90, 120);
  std::vector<uint8_t> pixels, mask;
  for (int64_t y = 0; y < kHeight; ++y)
    for (int64_t x = 0; x < kWidth; ++x) {
      const bool is_inside = shape.covers(static_cast<double>(x), static_cast<double>(y));
      for (int channel = 0; channel < 3; ++channel)
        pixels.push_back(static_cast<uint8_t>((is_inside ? inside : outside) + random.uniform() * 50));
      mask.push_back(is_inside ? static_cast<uint8_t>(shape.label) : 0);
    }
  std::fill(mask.begin(), mask.begin() + kWidth, kIgnored);
  const std::string name = fmt::format("{:03}.png", number);
  const auto write = [&](const char* part, const std::string& png) {
    fs::create_directories(folder / part);
    std::ofstream(folder / part / name, std::ios::binary) << png;
  };
  write("images", data::png_of({.pixels = pixels.data(), .width = kWidth, .height = kHeight, .channels = 3}));
  write("masks", data::mask_png_of(mask.data(), kWidth, kHeight));
}

std::string write_shapes_job(const TemporaryFolder& folder) {
  for (uint64_t i = 0; i < kTrain; ++i) write_shape(folder.path() / "train", i);
  for (uint64_t i = 0; i < kVal; ++i) write_shape(folder.path() / "val", 500 + i);
  return folder.write(
      "job.yaml",
      fmt::format(
          "schema: 1\ndevice: cpu\n"
          "model: {{type: unet, config: {{channels: [8, 16, 32]}}}}\n"
          "data:\n"
          "  train: {{format: segmentation, path: {0}/train, class_names: [nothing, circle, square, triangle]}}\n"
          "  val: {{path: {0}/val}}\n"
          "  image: {{augment: {{hflip: 0.5}}}}\n"
          "optimizer: {{type: adamw, lr: 0.01}}\n"
          "lr_scheduler: {{type: cosine, warmup: 10}}\n"
          "train: {{max_steps: 560, global_batch_size: 8}}\n"
          "eval: {{interval: 280, batch_size: 7}}\nlog: {{tensorboard: true}}\n",
          folder.path().string()));
}

std::vector<uint8_t> mask_at(const std::string& path) {
  const std::string file = read_file(path);
  data::ImageDecoder decoder;
  decoder.open(std::as_bytes(std::span(file)), path);
  const data::ImageView view = decoder.decode_numbers();
  EXPECT_EQ(view.width, kWidth);
  EXPECT_EQ(view.height, kHeight);
  return {view.pixels, view.pixels + view.width * view.height};
}

/// The mask in a PNG file as Base64.
std::vector<uint8_t> mask_in(const nlohmann::json& png) {
  const std::string file = *from_base64(png.get<std::string>());
  data::ImageDecoder decoder;
  decoder.open(std::as_bytes(std::span(file)), "mask");
  const data::ImageView view = decoder.decode_numbers();
  return {view.pixels, view.pixels + view.width * view.height};
}

/// Of the files in a folder against those of the same names: mean IoU and share of right pixels, in percent.
std::pair<double, double> scores_of(const fs::path& predicted, const fs::path& truth) {
  std::vector<double> both(kClasses), either(kClasses);
  double right = 0, all = 0;
  for (const auto& file : fs::directory_iterator(truth)) {
    const auto wanted = mask_at(file.path()), found = mask_at(predicted / file.path().filename());
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] == kIgnored) continue;
      ++all;
      ++either.at(wanted[i]);
      if (found[i] == wanted[i]) {
        ++right;
        ++both.at(wanted[i]);
      } else {
        ++either.at(found[i]);
      }
    }
  }
  double miou = 0;
  for (size_t i = 0; i < both.size(); ++i) miou += 100 * both[i] / either[i] / kClasses;
  return {miou, 100 * right / all};
}

nlohmann::json metrics_of(const std::string& run) {
  return nlohmann::json::parse(read_file(run + "/summary.json"))["metrics"];
}

/// Trains once for all tests.
class LabelledShapes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    job_ = write_shapes_job(*folder_);
    trained_ = gputrain({"run", job_, "--output-dir", run()});
  }
  static void TearDownTestSuite() { delete folder_; }
  void SetUp() override { ASSERT_EQ(trained_.exit_code, 0) << trained_.err; }

  static std::string run() { return *folder_ / "run"; }

  static inline TemporaryFolder* folder_ = nullptr;
  static inline std::string job_;
  static inline Result trained_;
};

TEST_F(LabelledShapes, AreLearnedAndChooseTheBestCheckpoint) {
  const auto metrics = metrics_of(run());
  EXPECT_GE(metrics["val/miou"].get<double>(), 95);
  EXPECT_GE(metrics["val/pixel_accuracy"].get<double>(), 98);
  EXPECT_THAT(trained_.out, ::testing::ContainsRegex("eval +[0-9,]+ val/mIoU .* best \\(was [0-9.]+%\\)"));
  EXPECT_THAT(trained_.out, HasSubstr("4 classes of pixels"));
  EXPECT_THAT(read_file(run() + "/report.html"), HasSubstr("val/miou"));
}

/// The part of the pixels that count.
double share_of_wrong(const std::vector<uint8_t>& found, const std::vector<uint8_t>& wanted) {
  double wrong = 0, all = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    all += wanted[i] == kIgnored ? 0 : 1;
    wrong += wanted[i] == kIgnored || found.at(i) == wanted[i] ? 0 : 1;
  }
  return wrong / all;
}

TEST_F(LabelledShapes, AreShownWithTheirMasksAndTheIouOfEachClass) {
  const auto details = nlohmann::json::parse(read_file(run() + "/evaluation.json"));
  const auto metrics = metrics_of(run());
  double miou = 0;
  for (const auto& one : details["iou"]) miou += 100 * one[0].get<double>() / kClasses;
  EXPECT_NEAR(miou, metrics["val/miou"], 1e-9);
  ASSERT_EQ(details["masks"].size(), 8U);
  for (const auto& one : details["masks"]) {
    const fs::path name = fs::path(one["name"].get<std::string>()).filename();
    const auto wanted = mask_at(folder_->path() / "val/masks" / name);
    EXPECT_EQ(mask_in(one["truth"]), wanted);
    EXPECT_DOUBLE_EQ(one["wrong"], share_of_wrong(mask_in(one["prediction"]), wanted)) << name;
    EXPECT_FALSE(one["png"].is_null());
  }
  EXPECT_THAT(read_file(run() + "/report.html"), HasSubstr(details["masks"][7]["prediction"].get<std::string>()));
}

TEST_F(LabelledShapes, AreShownWhereMostPixelsAreWrong) {
  const auto details = nlohmann::json::parse(read_file(run() + "/evaluation.json"));
  const std::string masks = *folder_ / "all";
  ASSERT_EQ(gputrain({"predict", run(), *folder_ / "val/images", "--masks", masks}).exit_code, 0);
  std::vector<double> shares;
  for (const auto& file : fs::directory_iterator(masks))
    shares.push_back(share_of_wrong(mask_at(file.path()), mask_at(*folder_ / "val/masks" / file.path().filename())));
  std::ranges::sort(shares, std::greater<>());
  ASSERT_EQ(std::ssize(shares), kVal);
  for (size_t i = 0; i < 8; ++i) EXPECT_DOUBLE_EQ(details["masks"][i]["wrong"], shares[i]) << i;
}

TEST_F(LabelledShapes, AreShownToTensorboardAtEachEvaluation) {
  for (const char* module : {"tensorboard", "PIL"}) GPUTRAIN_NEED_REFERENCE(module);
  ASSERT_TRUE(
      ::gputrain::testing::run_reference("monitor/tensorboard_reference.py", {run() + "/tb", *folder_ / "found.json"}));
  const auto shown = nlohmann::json::parse(read_file(*folder_ / "found.json")), sheets = shown["images"]["val/masks"];
  ASSERT_EQ(sheets.size(), 2U);
  EXPECT_EQ(sheets[0][0], 280);
  EXPECT_EQ(sheets[1][0], 560);
  const int64_t width = 8 + 6 * 168, height = 8 + 4 * (3 * kHeight + 4 + 22 + 8);
  ASSERT_EQ(sheets[1][1]["size"], nlohmann::json({width, height}));
  // The worst one's predicted mask, three times as large.
  const auto details = nlohmann::json::parse(read_file(run() + "/evaluation.json"));
  const std::string png = *from_base64(details["masks"][0]["prediction"].get<std::string>());
  data::ImageDecoder decoder;
  decoder.open(std::as_bytes(std::span(png)), "mask");
  const uint8_t* pixels = decoder.decode(3).pixels;
  const std::string rgb = *from_base64(sheets[1][1]["rgb"].get<std::string>());
  for (int64_t i = 0; i < 3 * kWidth * kHeight; ++i) {
    const int64_t place = (8 + i / 3 / kWidth * 3) * width + 8 + 2 * 168 + i / 3 % kWidth * 3;
    ASSERT_EQ(static_cast<uint8_t>(rgb.at(static_cast<size_t>(3 * place + i % 3))), pixels[i]) << i;
  }
}

nlohmann::json evaluated(int world, const std::string& job, const std::string& run, const std::string& set) {
  auto programs = start_ranks(world, {"eval", job, "--weights", run + "/model.safetensors", "--json", "--set", set});
  const Result result = wait_for(programs);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out);
}

TEST_F(LabelledShapes, HaveTheScoresOfTheMasksThatPredictWrites) {
  const auto plain = metrics_of(run()), mirrored = evaluated(1, job_, run(), "eval.hflip=true");
  EXPECT_NE(mirrored["val/loss"], plain["val/loss"]);
  EXPECT_GE(mirrored["val/miou"].get<double>(), 95) << "mirrored back";
  fs::rename(*folder_ / "train", *folder_ / "elsewhere");  // the weights say what they were trained to see
  for (const auto& [hflip, metrics] : {std::pair("false", plain), std::pair("true", mirrored)}) {
    const std::string masks = *folder_ / ("predicted_" + std::string(hflip));
    const Result result = gputrain({"predict", run(), *folder_ / "val/images", "--masks", masks, "--batch-size", "4",
                                    "--set", "eval.hflip=" + std::string(hflip)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(std::ranges::count(result.out, '\n'), kVal);
    const auto [miou, accuracy] = scores_of(masks, *folder_ / "val/masks");
    EXPECT_NEAR(miou, metrics["val/miou"], 1e-6) << hflip;
    EXPECT_NEAR(accuracy, metrics["val/pixel_accuracy"], 1e-6) << hflip;
  }
  fs::rename(*folder_ / "elsewhere", *folder_ / "train");
  const std::string image = *folder_ / "val/images/503.png";
  const Result json = gputrain({"predict", run(), image, "--masks", *folder_ / "one", "--json"});
  const auto told = nlohmann::json::parse(json.out);
  EXPECT_EQ(told["file"], image);
  const auto mask = mask_at(told["mask"]);
  EXPECT_NEAR(told["shares"]["nothing"],
              static_cast<double>(std::ranges::count(mask, 0)) / static_cast<double>(mask.size()), 1e-9);
}

TEST_F(LabelledShapes, ArePredictedInTheSizeOfEachImage) {
  // An image of odd size, and one that the job would scale.
  const std::vector<uint8_t> pixels(3 * 33 * 21, 130);
  const std::string image =
      folder_->write("odd.png", data::png_of({.pixels = pixels.data(), .width = 33, .height = 21, .channels = 3}));
  const auto size_with = [&](const std::string& size) {
    const std::string masks = *folder_ / ("odd_" + size);
    const Result result = gputrain({"predict", run(), image, "--masks", masks, "--set", "data.image.size=" + size});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string file = read_file(masks + "/odd.png");
    data::ImageDecoder decoder;
    return decoder.open(std::as_bytes(std::span(file)), "mask");
  };
  EXPECT_EQ(size_with("auto"), (data::ImageDecoder::Size{33, 21}));
  EXPECT_EQ(size_with("40"), (data::ImageDecoder::Size{33, 21}));
  const std::string broken = folder_->write("broken.png", "no image"), last = *folder_ / "val/images/503.png";
  const Result others = gputrain({"predict", run(), image, broken, last, "--masks", *folder_ / "others"});
  EXPECT_EQ(others.exit_code, 3);
  EXPECT_THAT(others.err, HasSubstr("1 image cannot be read: " + broken));
  EXPECT_THAT(others.out, AllOf(HasSubstr(image + "\t" + (*folder_ / "others/odd.png")),
                                HasSubstr(last + "\t" + (*folder_ / "others/503.png"))));
  const Result without = gputrain({"predict", run(), image});
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_THAT(without.out, HasSubstr(image + "\tnothing "));
  EXPECT_FALSE(nlohmann::json::parse(gputrain({"predict", run(), image, "--json"}).out).contains("mask"));
  const Result onto_itself = gputrain({"predict", run(), image, "--masks", folder_->path() / "." / ""});
  EXPECT_EQ(onto_itself.exit_code, 2);
  EXPECT_THAT(onto_itself.err, HasSubstr("would replace the image"));
  EXPECT_EQ(gputrain({"predict", run(), image, *folder_ / "odd.png", "--masks", *folder_ / "two"}).exit_code, 2);
}

TEST_F(LabelledShapes, AreEvaluatedAlikeByOneRankAndByTwo) {
  const auto one = evaluated(1, job_, run(), "eval.hflip=false"), two = evaluated(2, job_, run(), "eval.hflip=false");
  for (const char* name : {"val/miou", "val/pixel_accuracy"}) {
    EXPECT_EQ(one[name], two[name]) << name;
    EXPECT_NEAR(one[name], metrics_of(run())[name], 1e-9) << name;
  }
}

TEST_F(LabelledShapes, AreCheckedByADryRun) {
  const Result result = gputrain({"run", job_, "--dry-run", "--world-size", "4"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("all checks passed"), HasSubstr("every one of 96 once")));
}

TEST_F(LabelledShapes, WarnOfMasksThatAreBlackAndWhite) {
  const std::vector<uint8_t> pixels(3 * 8 * 8, 100);
  std::vector<uint8_t> mask(8 * 8, 0);
  std::fill(mask.begin(), mask.begin() + 16, 255);
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("{}.png", i);
    folder_->write("black/images/" + name,
                   data::png_of({.pixels = pixels.data(), .width = 8, .height = 8, .channels = 3}));
    folder_->write("black/masks/" + name, data::mask_png_of(mask.data(), 8, 8));
  }
  const std::string job = folder_->write(
      "black.yaml", fmt::format("schema: 1\ndevice: cpu\nmodel: {{type: unet, config: {{channels: [4, 8]}}}}\n"
                                "data: {{train: {{format: segmentation, path: {}/black, class_names: [no, yes]}}}}\n"
                                "train: {{max_steps: 1, global_batch_size: 2}}\n",
                                folder_->path().string()));
  const Result ignored = gputrain({"run", job, "--dry-run"});
  EXPECT_THAT(ignored.err, HasSubstr("4 masks looked at have one class, and 25 % of their pixels are ignored"));
  const Result known = gputrain(
      {"run", job, "--dry-run", "--set", "data.train.values=[0, 255]", "--set", "data.train.ignore_index=null"});
  EXPECT_EQ(known.exit_code, 0) << known.err;
  EXPECT_THAT(known.err, ::testing::Not(HasSubstr("ignored")));
}

TEST_F(LabelledShapes, AreShownWithTheirMasks) {
  const std::string sheet = *folder_ / "sheet.html";
  const Result result = gputrain({"data", "show", job_, "--output", sheet, "--limit", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string page = read_file(sheet);
  EXPECT_THAT(page, HasSubstr("title=\"plain, mask\""));
  EXPECT_THAT(page, HasSubstr("title=\"epoch 3, mask\""));
}

}  // namespace
}  // namespace gputrain::testing_support

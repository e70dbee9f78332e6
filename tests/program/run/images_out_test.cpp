// What the program shows of images: what a trained model says of them, and what a model gets.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
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
#include "support/rank_runs.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int64_t kSide = 16;
const std::vector<std::string> kColours{"blue", "green", "red"};

/// Noise with more of one colour.
std::vector<uint8_t> coloured_noise(size_t colour, uint64_t number) {
  RandomStream random(number, colour);
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < kSide * kSide; ++i) {
    for (const size_t channel : {size_t{2}, size_t{1}, size_t{0}})
      pixels.push_back(static_cast<uint8_t>(random.uniform() * (channel == colour ? 255 : 200)));
  }
  return pixels;
}

/// A folder of PNG files for each colour.
void write_images(const fs::path& folder, uint64_t first, uint64_t count) {
  for (size_t colour = 0; colour < kColours.size(); ++colour) {
    fs::create_directories(folder / kColours[colour]);
    for (uint64_t i = 0; i < count; ++i) {
      const auto pixels = coloured_noise(colour, first + i);
      std::ofstream(folder / kColours[colour] / fmt::format("{:02}.png", i), std::ios::binary)
          << data::png_of({.pixels = pixels.data(), .width = kSide, .height = kSide, .channels = 3});
    }
  }
}

std::string write_colours_job(const TemporaryFolder& folder, const std::string& more = "") {
  write_images(folder.path() / "train", 0, 12);
  write_images(folder.path() / "val", 100, 8);
  return folder.write("job.yaml", fmt::format("schema: 1\ndevice: cpu\nmodel: {{type: mlp}}\n"
                                              "data: {{train: {{format: imagefolder, path: {0}/train}}, val: {{format: "
                                              "imagefolder, path: {0}/val}}{1}}}\n"
                                              "optimizer: {{type: sgd, lr: 0.05}}\n"
                                              "train: {{max_steps: 10, global_batch_size: 6, ema: {{decay: 0.5}}}}\n",
                                              folder.path().string(), more));
}

struct ImagePrediction {
  std::string file, label;
  double probability = 0;
};

/// The first class of each line.
std::vector<ImagePrediction> predicted(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"predict"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const Result result = gputrain(all);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<ImagePrediction> predictions;
  std::istringstream lines(result.out);
  for (ImagePrediction one; std::getline(lines, one.file, '\t') && lines >> one.label >> one.probability;) {
    predictions.push_back(one);
    std::string rest;
    std::getline(lines, rest);
  }
  return predictions;
}

double share_of_right(const std::vector<ImagePrediction>& predictions) {
  const auto right = std::ranges::count_if(
      predictions, [](const ImagePrediction& one) { return fs::path(one.file).parent_path().filename() == one.label; });
  return static_cast<double>(right) / static_cast<double>(predictions.size());
}

TEST(PredictImages, IsWhatTheEvaluationMeasured) {
  const TemporaryFolder folder;
  const std::string job = write_colours_job(folder), run = folder / "run";
  const Result trained = gputrain({"run", job, "--output-dir", run});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const double top1 = nlohmann::json::parse(read_file(run + "/summary.json"))["metrics"]["val/top1"];
  fs::rename(folder / "train", folder / "elsewhere");  // the weights say what they were trained to see
  const auto predictions = predicted({run, folder / "val", "--batch-size", "5"});
  ASSERT_EQ(predictions.size(), 24U);
  EXPECT_NEAR(100 * share_of_right(predictions), top1, 1e-9);
  EXPECT_GT(top1, 50);
  const Result json = gputrain({"predict", run, predictions[3].file, "--json"});
  const auto told = nlohmann::json::parse(json.out);
  EXPECT_EQ(told["file"], predictions[3].file);
  EXPECT_EQ(told["label"], predictions[3].label);
  EXPECT_NEAR(told["probability"], predictions[3].probability, 1e-4);
  double sum = 0;
  for (const std::string& name : kColours) sum += told["probabilities"][name].get<double>();
  EXPECT_NEAR(sum, 1, 1e-6);
}

/// How much more likely the first colour is than the second, as the difference of logits.
double difference_of_logits(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"predict", "--json"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const auto probabilities = nlohmann::json::parse(gputrain(all).out)["probabilities"];
  return std::log(probabilities[kColours[0]].get<double>() / probabilities[kColours[1]].get<double>());
}

TEST(PredictImages, TakesTheMeanOfAnImageAndItsMirrorImage) {
  const TemporaryFolder folder;
  const std::string job = write_colours_job(folder), run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
  const std::vector<uint8_t> pixels = coloured_noise(1, 300);
  std::vector<uint8_t> mirrored;
  for (int64_t i = 0; i < kSide * kSide; ++i) {
    const auto from = pixels.begin() + 3 * (i - i % kSide + kSide - 1 - i % kSide);
    mirrored.insert(mirrored.end(), from, from + 3);
  }
  const std::string one = folder / "one.png", other = folder / "other.png";
  for (const auto& [path, bytes] : {std::pair(one, pixels), std::pair(other, mirrored)}) {
    std::ofstream(path, std::ios::binary)
        << data::png_of({.pixels = bytes.data(), .width = kSide, .height = kSide, .channels = 3});
  }
  const double of_one = difference_of_logits({run, one}), of_other = difference_of_logits({run, other});
  EXPECT_NEAR(difference_of_logits({run, one, "--set", "eval.hflip=true"}), (of_one + of_other) / 2, 1e-5);
  EXPECT_GT(std::abs(of_one - of_other), 1e-3);

  const Result measured = gputrain({"eval", job, "--weights", run, "--json", "--set", "eval.hflip=true"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_NEAR(100 * share_of_right(predicted({run, folder / "val", "--set", "eval.hflip=true"})),
              nlohmann::json::parse(measured.out)["val/top1"].get<double>(), 1e-9);
  const Result plain = gputrain({"eval", job, "--weights", run, "--json"});
  EXPECT_NE(nlohmann::json::parse(plain.out)["val/loss"], nlohmann::json::parse(measured.out)["val/loss"]);
}

TEST(PredictImages, ReadsTheNewestCheckpointOfARunThatHasNotEnded) {
  const TemporaryFolder folder;
  const std::string job = write_colours_job(folder), run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
  const auto at_end = predicted({run, folder / "val"});
  fs::remove(run + "/model.safetensors");
  const auto from_checkpoint = predicted({run, folder / "val"});
  ASSERT_EQ(from_checkpoint.size(), at_end.size());
  for (size_t i = 0; i < at_end.size(); ++i) EXPECT_NEAR(from_checkpoint[i].probability, at_end[i].probability, 1e-4);
}

TEST(PredictImages, TakesACheckpointOfARun) {
  const TemporaryFolder folder;
  const std::string job = write_colours_job(folder), run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run, "--set", "checkpoint.interval=5", "--set", "eval.interval=5"})
                .exit_code,
            0);
  const std::string early = run + "/ckpt/step-00000005";
  const Result evaluated = gputrain({"eval", job, "--weights", early, "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  fs::rename(folder.path() / "train", folder.path() / "elsewhere");  // the run says what it has seen
  const auto from_checkpoint = predicted({early, folder / "val"});
  EXPECT_NEAR(100 * share_of_right(from_checkpoint), nlohmann::json::parse(evaluated.out)["val/top1"], 1e-3);
  const auto at_end = predicted({run, folder / "val"});
  ASSERT_EQ(from_checkpoint.size(), at_end.size());
  EXPECT_NE(from_checkpoint[0].probability, at_end[0].probability);
  EXPECT_EQ(gputrain({"export", early, folder / "early.onnx", "--format", "onnx"}).exit_code, 0);
  fs::remove(run + "/model.safetensors");  // as after a kill
  const auto after_kill = predicted({early, folder / "val"});
  ASSERT_EQ(after_kill.size(), from_checkpoint.size());
  EXPECT_EQ(after_kill[0].probability, from_checkpoint[0].probability);
}

/// Images of 32 x 16 pixels, two classes.
void write_oblong_images(const fs::path& folder) {
  for (size_t colour = 0; colour < 2; ++colour) {
    fs::create_directories(folder / kColours[colour]);
    for (uint64_t i = 0; i < 6; ++i) {
      auto pixels = coloured_noise(colour, i);
      const auto more = coloured_noise(colour, 100 + i);
      pixels.insert(pixels.end(), more.begin(), more.end());
      std::ofstream(folder / kColours[colour] / fmt::format("{}.png", i), std::ios::binary)
          << data::png_of({.pixels = pixels.data(), .width = 2 * kSide, .height = kSide, .channels = 3});
    }
  }
}

class OblongImages : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, OblongImages,
                         ::testing::Values("{type: mlp}", "{type: convnet, config: {channels: [4], global_pool: none}}",
                                           "{type: resnet18, config: {width: 8}}", "{type: mobilenet_v3_small}",
                                           "{type: vit, config: {patch_size: 8, n_layer: 1, n_head: 2, n_embd: 16}}",
                                           "{type: convnext, config: {blocks: [1, 1], channels: [8, 16]}}",
                                           "{type: sequential, config: {layers: [{type: flatten}, {type: linear}]}}"));

TEST_P(OblongImages, AreTrainedOnEvaluatedPredictedShownAndExported) {
  const TemporaryFolder folder;
  write_oblong_images(folder.path() / "images");
  const std::string job = folder.write(
      "job.yaml", fmt::format("schema: 1\ndevice: cpu\nmodel: {0}\ndata: {{train: {{format: imagefolder, path: "
                              "{1}/images}}, val: {{path: {1}/images}}}}\noptimizer: {{type: sgd, lr: 0.05}}\ntrain: "
                              "{{max_steps: 3, global_batch_size: 6}}\n",
                              GetParam(), folder.path().string()));
  for (const char* size : {"auto", "[8,24]"}) {
    const std::string set = std::string("data.image.size=") + size, run = folder / size;
    const Result trained = gputrain({"run", job, "--output-dir", run, "--set", set});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const Result measured = gputrain({"eval", job, "--weights", run, "--json", "--set", set});
    ASSERT_EQ(measured.exit_code, 0) << measured.err;
    EXPECT_NEAR(100 * share_of_right(predicted({run, folder / "images"})),
                nlohmann::json::parse(measured.out)["val/top1"].get<double>(), 1e-9)
        << size;
    const Result exported = gputrain({"export", run, folder / "model.onnx", "--format", "onnx"});
    EXPECT_EQ(exported.exit_code, 0) << exported.err;
  }
  EXPECT_EQ(
      gputrain({"data", "show", job, "--output", folder / "sheet.html", "--set", "data.image.size=[8,24]"}).exit_code,
      0);
}

TEST(PredictImages, SaysWhichFileIsNoImage) {
  const TemporaryFolder folder;
  const std::string job = write_colours_job(folder), run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
  const std::string broken = folder.write("broken.png", "no image");
  const Result result =
      gputrain({"predict", run, folder / "val/red", broken, folder / "val/blue", "--batch-size", "3"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("1 image cannot be read: " + broken));
  EXPECT_EQ(result.out, gputrain({"predict", run, folder / "val/red", folder / "val/blue"}).out);
  const std::string notes = folder.write("notes.txt", ""), missing = folder / "missing.png";
  const Result others = gputrain({"predict", run, missing, folder / "val/red", notes, folder / "val/blue"});
  EXPECT_EQ(others.exit_code, 3);
  EXPECT_THAT(others.err, AllOf(HasSubstr(missing + ": no such file"), HasSubstr(notes + ": neither a JPEG"),
                                HasSubstr("2 images cannot be read")));
  EXPECT_EQ(others.out, result.out);
  EXPECT_EQ(gputrain({"predict", run, notes}).exit_code, 3);
}

/// The PNG files in a page, by their titles.
std::multimap<std::string, std::string> images_in(const std::string& page) {
  std::multimap<std::string, std::string> images;
  const std::string title = "title=\"", data = "src=\"data:image/png;base64,";
  for (size_t at = 0; (at = page.find(title, at)) != std::string::npos;) {
    at += title.size();
    const std::string name = page.substr(at, page.find('"', at) - at);
    at = page.find(data, at) + data.size();
    images.emplace(name, from_base64(page.substr(at, page.find('"', at) - at)).value_or(""));
  }
  return images;
}

std::vector<uint8_t> pixels_of(const std::string& png) {
  data::ImageDecoder decoder;
  decoder.open(std::as_bytes(std::span(png)), "image");
  const data::ImageView view = decoder.decode(3);
  return {view.pixels, view.pixels + view.width * view.height * view.channels};
}

TEST(ContactSheet, ShowsImagesPlainAndAugmentedWithTheirClasses) {
  const TemporaryFolder folder;
  const std::string job = write_colours_job(folder, ", image: {augment: {hflip: 1}}");
  const std::string sheet = folder / "sheet.html";
  const Result result = gputrain({"data", "show", job, "--output", sheet, "--limit", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string page = read_file(sheet);
  for (const std::string& name : kColours)
    EXPECT_THAT(page, HasSubstr("<figcaption>" + name + " <span>" + name + "/00.png"));
  EXPECT_THAT(page, HasSubstr("augmented by hflip"));
  const auto images = images_in(page);
  ASSERT_EQ(images.count("plain"), 3U);
  ASSERT_EQ(images.count("epoch 3"), 3U);
  const auto plain = pixels_of(images.find("plain")->second), flipped = pixels_of(images.find("epoch 3")->second);
  EXPECT_EQ(plain, coloured_noise(0, 0));
  for (int64_t row = 0; row < kSide; ++row)
    for (int64_t column = 0; column < kSide; ++column)
      EXPECT_EQ(flipped[static_cast<size_t>(3 * (row * kSide + column))],
                plain[static_cast<size_t>(3 * (row * kSide + kSide - 1 - column))]);
  const Result val = gputrain({"data", "show", job, "--on", "val", "--output", sheet});
  EXPECT_EQ(images_in(read_file(sheet)).count("epoch 1"), 0U) << val.err;
  const Result plainly = gputrain({"data", "show", job, "--output", sheet, "--set", "data.image.augment.hflip=0"});
  EXPECT_THAT(read_file(sheet), HasSubstr("not augmented")) << plainly.err;
  EXPECT_EQ(images_in(read_file(sheet)).count("epoch 1"), 0U);
  EXPECT_EQ(gputrain({"data", "show", job}).exit_code, 2);
}

TEST(ContactSheet, ShowsMicroBatchesAsTheyAreMixed) {
  const TemporaryFolder folder;
  const std::string job = write_colours_job(folder, ", image: {augment: {mix: {mixup: 1}}}");
  const std::string sheet = folder / "sheet.html";
  const Result result = gputrain({"data", "show", job, "--output", sheet, "--limit", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string page = read_file(sheet);
  EXPECT_EQ(images_in(page).count("mixed"), 32U);
  EXPECT_THAT(page, ContainsRegex("<figcaption>[0-9]+ % [a-z]+, [0-9]+ % [a-z]+</figcaption>"));
  EXPECT_THAT(page, HasSubstr("below, small micro-batches, mixed"));
  for (const char* setting : {"data.image.augment.mix.mixup=0", "data.image.augment.mix.probability=0"}) {
    ASSERT_EQ(gputrain({"data", "show", job, "--output", sheet, "--set", setting}).exit_code, 0);
    EXPECT_EQ(images_in(read_file(sheet)).count("mixed"), 0U) << setting;
  }
  ASSERT_EQ(gputrain({"data", "show", job, "--on", "val", "--output", sheet}).exit_code, 0);
  EXPECT_EQ(images_in(read_file(sheet)).count("mixed"), 0U) << "an evaluation mixes nothing";
}

nlohmann::json evaluation_of(const std::string& run) {
  return nlohmann::json::parse(read_file(run + "/evaluation.json"));
}

TEST(EvaluationDetails, CountsConfusedClassesAndKeepsTheWorstSamples) {
  const TemporaryFolder folder;
  const std::string job = write_colours_job(folder), run = folder / "run";
  const std::vector<std::string> early{"--set", "train.max_steps=2"};  // while the model is still wrong
  std::vector<std::string> command{"run", job, "--output-dir", run};
  command.insert(command.end(), early.begin(), early.end());
  ASSERT_EQ(gputrain(command).exit_code, 0);
  const auto details = evaluation_of(run);
  EXPECT_EQ(details["classes"], kColours);
  EXPECT_EQ(details["step"], 2);
  double all = 0, right = 0;
  for (const auto& pair : details["pairs"]) {
    all += pair[2].get<double>();
    right += pair[0] == pair[1] ? pair[2].get<double>() : 0;
    EXPECT_EQ(pair[3], 8);
  }
  const auto metrics = nlohmann::json::parse(read_file(run + "/summary.json"))["metrics"];
  EXPECT_EQ(all, 24);
  EXPECT_LT(right, 24);
  EXPECT_NEAR(100 * right / all, metrics["val/top1"], 1e-9);
  const auto& worst = details["worst"];
  ASSERT_EQ(worst.size(), 12U);
  EXPECT_GT(worst[0]["loss"].get<double>(), metrics["val/loss"].get<double>());
  std::map<std::string, double> losses;
  for (const auto& one : worst) {
    const std::string name = one["name"];
    losses[name] = one["loss"];
    EXPECT_EQ(name.substr(0, name.find('/')), kColours[one["target"].get<size_t>()]);
    EXPECT_EQ(pixels_of(*from_base64(one["png"].get<std::string>())), pixels_of(read_file(folder / ("val/" + name))));
  }
  EXPECT_THAT(read_file(run + "/report.html"), HasSubstr(worst[0]["png"].get<std::string>()));
  // What predict says of the same file with the same weights.
  const std::string name = worst[0]["name"];
  const auto told = nlohmann::json::parse(gputrain({"predict", run, folder / ("val/" + name), "--json"}).out);
  EXPECT_NEAR(-std::log(told["probabilities"][name.substr(0, name.find('/'))].get<double>()), losses[name], 1e-5);
  const std::string shared = folder / "shared";
  const Result result = ranks(2, job, shared, early);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto by_two = evaluation_of(shared);
  EXPECT_EQ(by_two["pairs"], details["pairs"]);
  for (size_t i = 0; i < worst.size(); ++i) EXPECT_EQ(by_two["worst"][i]["name"], worst[i]["name"]);
}

}  // namespace
}  // namespace gputrain::testing_support

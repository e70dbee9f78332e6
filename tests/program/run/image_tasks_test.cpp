// Losses, metrics and numbers of images: jobs learn, several ranks train as one does, and predict says what was
// learned.
#include <array>
#include <cmath>
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

#include "gputrain/core/random.hpp"
#include "gputrain/data/png.hpp"
#include "support/rank_runs.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

json metrics_of(const std::string& run) { return json::parse(read_file(run + "/summary.json")).at("metrics"); }

/// Grey squares whose brightness is what is learned, in lists of them.
class ImageTask : public ::testing::Test {
 protected:
  static constexpr int64_t kSide = 8;

  void SetUp() override {
    write_list("train", 48, 0);
    write_list("val", 25, 1000);
  }

  void write_list(const std::string& name, int count, uint64_t seed) {
    std::string list = "image,label,brightness,darkness\n";
    fs::create_directories(folder_.path() / name);
    for (int i = 0; i < count; ++i) {
      RandomStream random(seed, static_cast<uint64_t>(i));
      const double light = random.uniform();
      std::vector<uint8_t> pixels;
      for (int64_t p = 0; p < kSide * kSide; ++p)
        pixels.insert(pixels.end(), 3, static_cast<uint8_t>(255 * (0.9 * light + 0.1 * random.uniform())));
      const std::string file = fmt::format("{}/{}.png", name, i);
      std::ofstream(folder_.path() / file, std::ios::binary)
          << data::png_of({.pixels = pixels.data(), .width = kSide, .height = kSide, .channels = 3});
      // Few are bright, so that classes are not balanced.
      list += fmt::format("{},{},{},{}\n", file,
                          light > 0.8   ? "bright"
                          : light > 0.5 ? "grey"
                                        : "dark",
                          light, 2 - 2 * light);
    }
    folder_.write(name + ".csv", list);
  }

  std::string write_job(const std::string& task, const std::string& image = "", const std::string& train = "",
                        const std::string& more = "") const {
    return folder_.write(
        "job.yaml",
        fmt::format(
            "schema: 1\nseed: 3\ndevice: cpu\nmodel: {{type: mlp, config: {{hidden: [16]}}}}\ntask: {0}\n"
            "data: {{train: {{format: csv, path: {1}/train.csv}}, val: {{path: {1}/val.csv}}, image: {{{2}}}}}\n"
            "train: {{max_steps: 20, global_batch_size: 16{3}}}\noptimizer: {{type: adamw, lr: 0.01}}\n"
            "eval: {{interval: 10}}\nlog: {{interval: 1}}\n{4}",
            task, folder_.path().string(), image, train, more));
  }

  std::string trained(const std::string& job, const std::string& name, const std::vector<std::string>& settings = {}) {
    std::vector<std::string> arguments{"run", job, "--output-dir", folder_ / name};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    const Result result = gputrain(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return folder_ / name;
  }

  /// Two ranks, and micro-batches, compute what one rank does.
  void expect_like_one(const std::string& job, const std::vector<std::string>& metrics) {
    const std::string one = trained(job, "one"), parts = trained(job, "parts", {"train.micro_batch_size=3"});
    const Result result = ranks(2, job, folder_ / "two");
    ASSERT_EQ(result.exit_code, 0) << result.err;
    for (const std::string& other : {parts, folder_ / "two"}) {
      expect_equal_losses(one + "/metrics.jsonl", other + "/metrics.jsonl", 1e-9);
      for (const std::string& name : metrics) {
        const double value = metrics_of(one).at(name);
        EXPECT_NEAR(metrics_of(other).at(name), value, 1e-9 * std::abs(value)) << name;
      }
    }
  }

  TemporaryFolder folder_;
};

TEST_F(ImageTask, WeighsClassesAlikeOnAnyNumberOfRanks) {
  for (const char* loss : {"cross_entropy", "bce"}) {
    const std::string job =
        write_job(fmt::format("{{type: classification, config: {{loss: {}, class_weights: auto}}}}", loss), "",
                  ", label_smoothing: 0.1", "precision: fp64\n");
    expect_like_one(job, {"train/grad_norm", "val/loss", "val/f1", "val/precision", "val/recall", "val/auc"});
    for (const char* run : {"one", "parts", "two"}) fs::remove_all(folder_ / run);
  }
}

/// Mixing depends on the micro-batches, so that only their number may stay.
TEST_F(ImageTask, WeighsClassesOfMixedImages) {
  const std::string job =
      write_job("{type: classification, config: {loss: focal, class_weights: [1, 3, 2]}}",
                "augment: {mix: {mixup: 0.4, cutmix: 1}}", ", micro_batch_size: 8", "precision: fp64\n");
  const std::string one = trained(job, "one", {"train.max_steps=4"});
  EXPECT_TRUE(std::isfinite(metrics_of(one).at("val/loss").get<double>()));
  EXPECT_LT(metrics_of(one).at("train/loss").get<double>(), 2);
}

TEST_F(ImageTask, LearnsWithEveryLossInEveryPrecision) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"fp32", "{loss: bce, target_threshold: 0.2, sum_classes: true}"},
      {"bf16", "{loss: focal, alpha: null}"},
      {"fp16", "{class_weights: [1, 3, 2]}"}};
  for (const auto& [precision, config] : cases) {
    const std::string job = write_job(fmt::format("{{type: classification, config: {}}}", config), "",
                                      ", label_smoothing: 0.1", fmt::format("precision: {}\n", precision));
    const std::string run = trained(job, precision, {"train.max_steps=60"});
    EXPECT_GT(metrics_of(run).at("val/auc").get<double>(), 0.9) << precision << config;
  }
}

TEST_F(ImageTask, KeepsTheBestCheckpointByTheMetricThatIsNamed) {
  const std::string run = trained(write_job("{type: classification}", "", "", "checkpoint: {metric: auc}\n"), "run");
  const json summary = json::parse(read_file(run + "/summary.json"));
  EXPECT_THAT(summary.dump(), HasSubstr("val/auc"));
  const Result without =
      gputrain({"run", write_job("{type: classification, config: {auc: false}}", "", "", "checkpoint: {metric: auc}\n"),
                "--output-dir", folder_ / "none"});
  EXPECT_EQ(without.exit_code, 2) << without.err;
  EXPECT_THAT(without.err, HasSubstr("auc"));
}

TEST_F(ImageTask, LearnsNumbersAlikeOnAnyNumberOfRanks) {
  const std::string columns = "columns: {label: [brightness, darkness]}";
  const std::string job = write_job("{type: regression, config: {loss: l1}}", columns, "", "precision: fp64\n");
  expect_like_one(job, {"train/grad_norm", "val/loss", "val/mae", "val/rmse", "val/r2"});
}

TEST_F(ImageTask, PredictsTheNumbersThatTheEvaluationMeasured) {
  const std::string columns = "columns: {label: [brightness, darkness]}";
  const std::string job = write_job("{type: regression}", columns);
  const std::string run = trained(job, "run", {"train.max_steps=60"});
  const json metrics = metrics_of(run);
  EXPECT_GT(metrics.at("val/r2").get<double>(), 0.8);
  fs::rename(folder_ / "train.csv", folder_ / "elsewhere");  // the weights say what they were trained to see
  std::vector<std::string> command{"predict", run};
  std::istringstream list(read_file(folder_ / "val.csv"));
  std::string line;
  std::getline(list, line);
  std::vector<std::vector<double>> truth;
  while (std::getline(list, line)) {
    const size_t comma = line.find(',');
    command.push_back(folder_ / line.substr(0, comma));
    const size_t first = line.find(',', comma + 1), second = line.find(',', first + 1);
    truth.push_back({std::stod(line.substr(first + 1)), std::stod(line.substr(second + 1))});
  }
  const Result plain = gputrain(command);
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.out, HasSubstr("val/0.png\tbrightness "));
  command.emplace_back("--json");
  std::istringstream lines(gputrain(command).out);
  double sum = 0;
  for (const auto& wanted : truth) {
    std::getline(lines, line);
    const json numbers = json::parse(line).at("numbers");
    sum += std::abs(numbers.at("brightness").get<double>() - wanted[0]) +
           std::abs(numbers.at("darkness").get<double>() - wanted[1]);
  }
  EXPECT_NEAR(sum / static_cast<double>(2 * truth.size()), metrics.at("val/mae").get<double>(), 1e-5);
}

TEST_F(ImageTask, PredictsProbabilitiesOfSigmoids) {
  const std::string run = trained(write_job("{type: classification, config: {loss: bce}}"), "run");
  const Result result = gputrain({"predict", run, folder_ / "val/0.png", folder_ / "val/1.png", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const auto probabilities = json::parse(line).at("probabilities").get<std::map<std::string, double>>();
    ASSERT_EQ(probabilities.size(), 3U);
    double sum = 0;
    for (const auto& [name, probability] : probabilities) sum += probability;
    EXPECT_GT(std::abs(sum - 1), 1e-4);  // they are of a sigmoid each
  }
}

TEST_F(ImageTask, LearnsSetsOfClasses) {
  const std::string run = trained(write_job("{type: multi_label_classification}"), "run");
  EXPECT_GT(metrics_of(run).at("val/f1_micro").get<double>(), 0.6);
  const Result result = gputrain({"predict", run, folder_ / "val/0.png", "--json"});
  EXPECT_THAT(result.out, HasSubstr("\"labels\"")) << result.err;
}

TEST_F(ImageTask, MayHaveAModelOfMoreClassesThanTheData) {
  const std::vector<std::array<std::string, 3>> cases{
      {"{type: classification, config: {class_weights: auto}}", "label", "probabilities"},
      {"{type: multi_label_classification}", "label", "probabilities"},
      {"{type: regression}", "brightness", "numbers"}};
  for (const auto& [task, label, values] : cases) {
    const std::string run = trained(write_job(task, "columns: {label: " + label + "}"), "run",
                                    {"model.config.num_classes=7", "train.max_steps=2"});
    const Result result = gputrain({"predict", run, folder_ / "val/0.png", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(json::parse(result.out).at(values).size(), label == "label" ? 3U : 1U) << result.out;
    fs::remove_all(run);
  }
}

TEST_F(ImageTask, ShowsNumbersBesideTheirImages) {
  const std::string job = write_job("{type: regression}", "columns: {label: [darkness]}"),
                    sheet = folder_ / "sheet.html";
  const Result result = gputrain({"data", "show", job, "--output", sheet, "--limit", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("48 images 8x8x3, 1 number each"));
  EXPECT_THAT(read_file(sheet), ::testing::ContainsRegex("<figcaption>darkness [0-9.]+ <span>train/0.png"));
}

TEST_F(ImageTask, NeedsANameForItsOptions) {
  const Result result = gputrain({"validate", write_job("{config: {loss: bce}}")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("job.yaml:5:8: 'task.config' sets options, but 'task.type' is missing"));
  EXPECT_THAT(result.err, HasSubstr("set task.type: classification, "));
}

TEST_F(ImageTask, IsToldWhereALossBelongs) {
  const Result known = gputrain({"validate", write_job("{}", "", "", "loss: bce\n")});
  EXPECT_THAT(known.err, HasSubstr("'loss' belongs under 'task.config'"));
  EXPECT_THAT(known.err, ::testing::Not(HasSubstr("there it must be")));
}

TEST_F(ImageTask, WarnsOfNumbersThatBecomeClasses) {
  const Result result =
      gputrain({"run", write_job("{}", "columns: {label: brightness}"), "--dry-run", "--set", "data.val=null"});
  EXPECT_THAT(result.err, HasSubstr("data.train: 48 classes, such as '0."));
  EXPECT_THAT(result.err, HasSubstr("numbers are learned by task: {type: regression}"));
}

TEST_F(ImageTask, SaysThatNumbersAreNotMixed) {
  const Result result =
      gputrain({"run", write_job("{type: regression}", "columns: {label: brightness}, augment: {mix: {mixup: 1}}"),
                "--output-dir", folder_ / "run", "--set", "train.max_steps=1", "--set", "train.label_smoothing=0.1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err + result.out, HasSubstr("data.image.augment.mix.mixup has no effect"));
  EXPECT_THAT(result.err + result.out, HasSubstr("train.label_smoothing has no effect"));
}

TEST_F(ImageTask, SaysThatSingleImagesAreNotMixed) {
  const std::string job = write_job("{}", "augment: {mix: {mixup: 1, cutmix: 1}}");
  const auto told = [&](const std::string& setting) {
    const Result result = gputrain({"run", job, "--dry-run", "--set", setting});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  const std::string no_effect = "images are mixed within a micro-batch, and each has one image";
  EXPECT_THAT(told("train.micro_batch_size=1"), HasSubstr(no_effect));
  EXPECT_THAT(told("train.micro_batch_size=2"), ::testing::Not(HasSubstr(no_effect)));
}

TEST_F(ImageTask, WarnsOfClassesThatASplitTakesAway) {
  std::string list = "image,label\n";
  for (int i = 0; i < 12; ++i) list += fmt::format("train/{}.png,class {}\n", i, i);
  folder_.write("train.csv", list);
  const std::string job = folder_.write(
      "split.yaml", fmt::format("schema: 1\ndevice: cpu\nmodel: {{type: mlp}}\ndata: {{train: {{format: csv, path: "
                                "{}/train.csv}}}}\ntrain: {{max_steps: 2, global_batch_size: 4}}\n",
                                folder_.path().string()));
  const Result half = gputrain({"run", job, "--dry-run", "--set", "data.val.split=50%"});
  EXPECT_EQ(half.exit_code, 0) << half.err;
  EXPECT_THAT(half.err,
              ::testing::ContainsRegex("warning: data: a split leaves [0-9]+ class(es)? without any sample to "
                                       "learn from: class "));
  EXPECT_THAT(gputrain({"run", job, "--dry-run"}).err, ::testing::Not(HasSubstr("a split leaves")));
}

}  // namespace
}  // namespace gputrain::testing_support

// Which task fits which data, the metrics of each task, and a task that a test adds.
#include "gputrain/tasks/task.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const InputSpec kAny, kReadsTokens{.field = kTokens}, kLabelsPixels{.field = kImage, .target = Target::pixels};

std::vector<std::string> metrics_for(const data::SampleLayout& layout, const InputSpec& model,
                                     const config::Choice& choice = {}) {
  std::vector<std::string> names;
  const auto task = catalog().make(choice, {.layout = layout, .model = model});
  for (const Metric& metric : task->metrics()) names.push_back(metric.name);
  return names;
}

TEST(TaskCatalog, ChoosesByTheTargetOfTheData) {
  EXPECT_THAT(metrics_for(data::SampleLayout::images(8, 8, 3, 10), kAny),
              ElementsAre("loss", "top1", "top5", "f1", "precision", "recall", "auc"));
  EXPECT_THAT(metrics_for(data::SampleLayout::tokens(16, 50), kReadsTokens), ElementsAre("loss", "perplexity"));
}

TEST(TaskCatalog, ChoosesByWhatTheModelLabels) {
  const auto images = data::SampleLayout::images(8, 6, 3, 10), masks = data::SampleLayout::masked_images(8, 6, 3, 10);
  EXPECT_THAT(metrics_for(masks, kLabelsPixels), ElementsAre("loss", "miou", "pixel_accuracy"));
  const auto refusal = [](const data::SampleLayout& layout, const InputSpec& model) {
    try {
      metrics_for(layout, model);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(images, kLabelsPixels), HasSubstr("the data has no masks"));
  EXPECT_THAT(refusal(masks, kAny), HasSubstr("no task fits"));
}

TEST(TaskCatalog, ChoosesByTheLabelsOfTexts) {
  data::SampleLayout sentences = data::SampleLayout::values({16}, at::kLong, 2);
  sentences.fields.front().name = kTokens;
  EXPECT_THAT(metrics_for(sentences, kReadsTokens),
              ElementsAre("loss", "accuracy", "f1", "precision", "recall", "auc", "f1_macro", "mcc"));
  sentences.fields.back().type = at::kFloat;
  EXPECT_THAT(metrics_for(sentences, kReadsTokens), ElementsAre("loss", "mae", "rmse", "r2", "pearson", "spearman"));
  sentences.fields.back().sizes = {2};
  EXPECT_THAT(metrics_for(sentences, kReadsTokens), ElementsAre("loss", "f1_micro", "f1_macro"));
}

TEST(TaskCatalog, SaysWhatATaskLearnsFromTexts) {
  const auto target = [](const std::string& name) {
    const config::Choice choice =
        name.empty() ? config::Choice{} : config::Choice{name, catalog().find(name)->schema->create()};
    return catalog().reads(choice, {.field = kTokens, .target = Target::label}).target;
  };
  EXPECT_EQ(target(""), Target::label);
  EXPECT_EQ(target("regression"), Target::number);
  EXPECT_EQ(target("classification"), Target::label);
}

constexpr Target kMood{"mood", "the mood of a text"};

struct Moods final : Task {
  Moods(const config::NoOptions&, const TaskRequest&) {}
  static Target target() { return kMood; }
  static Target head() { return Target::label; }
  static std::unique_ptr<records::RecordReader> reader(const data::DatasetRequest&) { return nullptr; }
  static bool fits(const TaskRequest& request) { return request.model.target == kMood; }
  static std::vector<Metric> measures() { return {}; }
  ops::Loss loss(models::Model&, const Batch&, const at::Tensor&) const override { return {}; }
  Tally::Parts parts() const override { return {}; }
  void evaluate(models::Model&, const Batch&, Tally&) const override {}
};

TEST(TaskCatalog, TakesATaskWithATargetAndSamplesOfItsOwn) {
  TaskCatalog tasks("task of a test");
  tasks.note<Moods, config::NoOptions>("moods");
  EXPECT_EQ(Target::named("mood"), kMood);
  EXPECT_THROW(records::add_reader(kMood, nullptr), std::logic_error) << "it is there";
}

TEST(TaskCatalog, RefusesModelsOfTextsThatGiveSomethingElse) {
  const auto fits = [](const std::string& name, const InputSpec& model) {
    try {
      catalog().check_head({name, catalog().find(name)->schema->create()}, model);
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_THAT(error.what(), HasSubstr("model.config.head"));
      return std::string(error.parts().hint);
    }
  };
  const std::map<std::string, std::vector<Target>> good{{"text_classification", {Target::label}},
                                                        {"multi_label_classification", {Target::label}},
                                                        {"regression", {Target::label}},
                                                        {"tagging", {Target::tags}},
                                                        {"similarity", {Target::pairs}},
                                                        {"retrieval", {Target::pairs}},
                                                        {"language_model", {Target::next_token}},
                                                        {"masked_language_model", {Target::masked}},
                                                        {"dpo", {Target::next_token}},
                                                        {"orpo", {Target::next_token}},
                                                        {"simpo", {Target::next_token}},
                                                        {"kto", {Target::next_token}},
                                                        {"reward", {Target::label}}};
  for (const auto& [name, targets] : good)
    for (const Target& target : {Target::next_token, Target::masked, Target::label, Target::tags, Target::pairs})
      EXPECT_EQ(fits(name, {.field = kTokens, .target = target}).empty(),
                std::ranges::find(targets, target) != targets.end())
          << name;
  EXPECT_EQ(fits("reward", {.field = kTokens, .target = Target::masked}), "head: classifier");
  EXPECT_EQ(fits("regression", {.field = "image"}), "");
  EXPECT_EQ(fits("classification", {.field = kTokens, .target = Target::masked}), "");  // the data decides
}

TEST(TaskCatalog, RefusesDataThatNoTaskFits) {
  data::SampleLayout boxes = data::SampleLayout::images(8, 8, 3, 10);
  boxes.fields.back() = {.name = "boxes", .type = at::kFloat, .sizes = {20, 4}, .ragged = true, .target = true};
  const auto message = [&](const config::Choice& choice) {
    try {
      catalog().make(choice, {.layout = boxes, .model = kAny});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message({}), HasSubstr("no task fits"));
  EXPECT_THAT(message({"classification", catalog().find("classification")->schema->create()}),
              HasSubstr("classification does not fit"));
}

TEST(Metric, IsFoundByItsLoggedName) {
  EXPECT_TRUE(smaller_is_better("val/loss"));
  EXPECT_TRUE(smaller_is_better("perplexity"));
  EXPECT_FALSE(smaller_is_better("test/top5"));
  EXPECT_EQ(find_metric("val/nothing"), nullptr);
}

TEST(Metric, IsFinishedFromSums) {
  const auto task = catalog().make({}, {.layout = data::SampleLayout::tokens(4, 9), .model = kReadsTokens});
  const Totals totals{.sums = {{"loss", 6.0}}, .rows = {}, .weight = 3};
  EXPECT_DOUBLE_EQ(task->find("loss")->finish(totals), 2);
  EXPECT_DOUBLE_EQ(task->find("perplexity")->finish(totals), std::exp(2.0));
  EXPECT_EQ(task->best_metric().name, "loss");
  EXPECT_DOUBLE_EQ(task->find("loss")->finish({.sums = {{"loss", 0.0}}, .rows = {}, .weight = 0}), 0);
}

}  // namespace
}  // namespace gputrain::tasks

// Losses and scores of classes and numbers against torch, timm, torchvision and scikit-learn.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../../src/tasks/scores.hpp"
#include "gputrain/config/load.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/mixing.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/tasks/task.hpp"
#include "support/python_reference.hpp"

namespace gputrain::tasks {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct JobOfTask {
  config::Choice type;
  static void describe(config::Description<JobOfTask>& d) {
    d.choice("type", &JobOfTask::type, catalog(), "task", "config");
  }
};

std::shared_ptr<const config::Loaded> loaded_task(const std::string& text) {
  return std::make_shared<config::Loaded>(
      config::load(config::schema_of<JobOfTask>(), {.file = "task.yaml", .text = text}));
}

std::unique_ptr<Task> class_task_of(const std::string& text, const data::SampleLayout& layout, double smoothing = 0,
                                    const data::Dataset* train = nullptr) {
  return catalog().make(
      loaded_task(text)->as<JobOfTask>().type,
      {.layout = layout, .model = {.target = Target::number}, .label_smoothing = smoothing, .train = train});
}

/// Gives its weights as logits of images that are the rows of the unit matrix.
class Logits final : public models::Model {
 public:
  Logits(const at::Tensor& logits, at::ScalarType compute)
      : Model(nn::Context{.policy = {.master = logits.scalar_type(), .compute = compute}}) {
    layer_ = add_child<nn::Linear>("layer", context(),
                                   nn::Linear::Options{.in = logits.size(0), .out = logits.size(1), .bias = false});
    nn::initialize(*this, 3);
    const at::NoGradGuard no_grad;
    layer_->weight().copy_(logits.t());
  }
  at::Tensor forward(const at::Tensor& images) override { return layer_->forward(images.flatten(1)); }
  std::vector<models::Unit> units() override { return {{"all", {this}}}; }
  at::Tensor gradient() const { return layer_->weight().grad().t(); }

 private:
  nn::Linear* layer_;
};

class ClassReference : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const char* module : {"torchvision", "timm", "sklearn"}) {
      if (!gputrain::testing::has_reference(module)) return;
    }
    folder_ = fs::temp_directory_path() / ("gputrain-classes-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    ASSERT_TRUE(gputrain::testing::run_reference("tasks/class_reference.py", {folder_}));
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }
  void SetUp() override {
    for (const char* module : {"torchvision", "timm", "sklearn"}) GPUTRAIN_NEED_REFERENCE(module);
  }
  static json told(const char* name) {
    std::ifstream file(folder_ / name);
    return json::parse(file);
  }
  static inline fs::path folder_;
};

std::vector<double> values_of(const json& rows) {
  std::vector<double> values;
  for (const json& row : rows)
    for (const json& value : row.is_array() ? row : json::array({row})) values.push_back(value.get<double>());
  return values;
}

/// [rows, columns], with a row at the end that holds `last`.
at::Tensor rows_of(const json& rows, double last) {
  std::vector<double> values = values_of(rows);
  const auto columns = std::ssize(values) / std::ssize(rows);
  values.insert(values.end(), static_cast<size_t>(columns), last);
  return at::tensor(values, at::kDouble).view({-1, columns});
}

/// A batch of the reference, with a row at its end that does not count.
Batch batch_of(const json& told, bool is_mixed, at::ScalarType type) {
  auto targets = told.at("targets").get<std::vector<int64_t>>(), others = told.at("others").get<std::vector<int64_t>>();
  targets.push_back(kIgnoreIndex);
  others.push_back(kIgnoreIndex);
  const auto rows = std::ssize(targets);
  Batch batch{.fields = {{kImage, at::eye(rows, type).view({rows, 1, 1, rows})}, {kTarget, at::tensor(targets)}},
              .samples = rows,
              .samples_on_all_ranks = rows,
              .weight = rows - 1};
  if (!is_mixed) return batch;
  batch.fields.push_back({data::kMixedTarget, at::tensor(others)});
  batch.fields.push_back({data::kMixedPart, at::full({rows}, told.at("part").get<double>(), at::kDouble)});
  return batch;
}

/// What a loader divides the sum of these targets by.
double loss_weight(const Task& task, const json& targets) {
  const auto weights = task.class_weights();
  double sum = 0;
  for (const json& target : targets) sum += weights.empty() ? 1 : weights.at(target.get<size_t>());
  return sum;
}

TEST_F(ClassReference, LossesAndTheirGradientsAreThoseOfTheLibraries) {
  const json told = ClassReference::told("losses.json");
  ASSERT_EQ(told.at("cases").size(), 12U);
  for (const json& one : told.at("cases")) {
    const std::string name = one.at("name");
    SCOPED_TRACE(name);
    const at::Tensor wanted = rows_of(one.at("gradient"), 0), logits = rows_of(one.at("logits"), 0.5);
    const auto layout = data::SampleLayout::images(1, logits.size(0), 1, logits.size(1));
    const auto task = class_task_of("{type: classification, config: " + one.at("options").dump() + "}", layout,
                                    one.at("smoothing").get<double>());
    const double divisor = loss_weight(*task, told.at("targets"));
    for (const auto& [compute, tolerance] : {std::pair{at::kDouble, 1e-12}, {at::kBFloat16, 2e-2}}) {
      const at::ScalarType master = compute == at::kDouble ? at::kDouble : at::kFloat;
      Logits model(logits.to(master), compute);
      const Batch batch = batch_of(told, one.at("mixed").get<bool>(), compute);
      const ops::Loss loss = task->loss(model, batch, at::full({}, 1 / divisor, at::kDouble));
      loss.weighted.backward();
      EXPECT_NEAR(loss.weighted.item<double>(), one.at("loss").get<double>(), tolerance * one.at("loss").get<double>());
      EXPECT_NEAR(loss.sum.item<double>() / divisor, loss.weighted.item<double>(), 1e-6);
      const at::Tensor found = model.gradient().to(at::kDouble);
      EXPECT_LT((found - wanted).abs().max().item<double>(), tolerance);
      EXPECT_EQ(found.select(0, -1).abs().max().item<double>(), 0);  // the row that does not count
    }
  }
}

TEST_F(ClassReference, EvaluationsHaveTheLossWithoutSmoothing) {
  const json told = ClassReference::told("losses.json");
  for (const char* name : {"weights", "focal"}) {
    const auto& cases = told.at("cases");
    const auto one = std::ranges::find_if(cases, [&](const json& each) { return each.at("name") == name; });
    const at::Tensor logits = rows_of(one->at("logits"), 0.5);
    const auto task = class_task_of("{type: classification, config: " + one->at("options").dump() + "}",
                                    data::SampleLayout::images(1, logits.size(0), 1, logits.size(1)), 0.2);
    Logits model(logits, at::kDouble);
    const Batch batch = batch_of(told, false, at::kDouble);
    Tally tally(task->parts(), at::kCPU);
    tally.add_weight(batch.weight);
    task->evaluate(model, batch, tally);
    comm::ProcessGroups alone;
    EXPECT_NEAR(task->find("loss")->finish(tally.merge(alone)), one->at("loss").get<double>(), 1e-12) << name;
  }
}

TEST_F(ClassReference, ScoresAreThoseOfScikitLearn) {
  const json told = ClassReference::told("scores.json");
  ASSERT_EQ(told.at("classes").size(), 2U);
  for (const json& one : told.at("classes")) {
    const at::Tensor truth = rows_of(one.at("truth"), kIgnoreIndex), guesses = rows_of(one.at("guesses"), 0);
    const Confusion confusion(at::cat({guesses, truth}, 1));
    EXPECT_NEAR(confusion.f1(), one.at("f1").get<double>(), 1e-12);
    EXPECT_NEAR(confusion.precision(), one.at("precision").get<double>(), 1e-12);
    EXPECT_NEAR(confusion.recall(), one.at("recall").get<double>(), 1e-12);
    EXPECT_NEAR(auc(rows_of(one.at("probabilities"), 0.3), truth.select(1, 0)), one.at("auc").get<double>(), 1e-12);
  }
  const json& numbers = told.at("numbers");
  const Errors errors(at::cat({rows_of(numbers.at("guesses"), 7), rows_of(numbers.at("truth"), std::nan(""))}, 1));
  EXPECT_NEAR(errors.mae(), numbers.at("mae").get<double>(), 1e-12);
  EXPECT_NEAR(errors.rmse(), numbers.at("rmse").get<double>(), 1e-12);
  EXPECT_NEAR(errors.r2(), numbers.at("r2").get<double>(), 1e-12);
}

TEST(ClassScores, OfOneClassOrOfNumbersThatAreNoneAreDefined) {
  const at::Tensor first = at::full({3, 2}, 0, at::kDouble);  // all are class 0, and are taken for it
  EXPECT_EQ(Confusion(first, 2).f1(), 0);
  EXPECT_EQ(Confusion(first, 3).f1(), 1);
  const at::Tensor all = at::tensor(std::vector<double>{0.2, 0.8, 0.6, 0.4}, at::kDouble).view({2, 2});
  EXPECT_EQ(auc(all, at::tensor(std::vector<double>{1, 1}, at::kDouble)), 0.5);
  EXPECT_EQ(auc(at::full({2, 2}, std::nan(""), at::kDouble), at::tensor(std::vector<double>{0, 1}, at::kDouble)), 0.5);
  EXPECT_EQ(spearman(at::full({3, 2}, 1, at::kDouble)), 0);
  const at::Tensor constant = at::tensor(std::vector<double>{1, 3, 2, 3}, at::kDouble).view({2, 2});
  EXPECT_EQ(Errors(constant).r2(), 0);
  EXPECT_EQ(Errors(at::full({2, 2}, std::nan(""), at::kDouble)).rmse(), 0);
}

/// Images of which only the classes are known.
class Classes final : public data::Dataset {
 public:
  explicit Classes(std::vector<int64_t> classes) : classes_(std::move(classes)) {}
  int64_t size() const override { return std::ssize(classes_); }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t, const data::ReadContext&, const data::SampleRow&) const override {}
  std::optional<int64_t> class_of(int64_t index) const override {
    const int64_t known = classes_[static_cast<size_t>(index)];
    return known < 0 ? std::nullopt : std::optional(known);
  }
  std::string describe() const override { return "classes"; }

 private:
  std::vector<int64_t> classes_;
  data::SampleLayout layout_ = data::SampleLayout::images(1, 1, 1, 4);
};

std::string refusal(const std::string& config, const data::Dataset* train = nullptr) {
  try {
    class_task_of("{type: classification, config: " + config + "}", data::SampleLayout::images(1, 1, 1, 4), 0, train);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ClassWeights, AreBalancedAsByScikitLearn) {
  const Classes some({0, 0, 0, 1, -1, 0, 3, 3, 0}), none({-1, -1});
  const auto task = class_task_of("{type: classification, config: {class_weights: auto}}", some.layout(), 0, &some);
  EXPECT_THAT(task->class_weights(), ::testing::ElementsAre(8 / (3 * 5.0), 8 / (3 * 1.0), 0, 8 / (3 * 2.0)));
  EXPECT_THAT(refusal("{class_weights: auto}", &none), ::testing::HasSubstr("not known before they are read"));
}

TEST(ClassWeights, AreAsManyAsClasses) {
  EXPECT_EQ(refusal("{class_weights: [1, 2, 0, 1]}"), "");
  EXPECT_THAT(refusal("{class_weights: [1, 2]}"), ::testing::HasSubstr("2 weights for 4 classes"));
  EXPECT_THAT(refusal("{class_weights: [0, 0, 0, 0]}"), ::testing::HasSubstr("no class has a weight above 0"));
}

TEST(ClassLosses, RefuseOptionsOfOthers) {
  for (const char* config : {"{gamma: 3}", "{loss: bce, alpha: 0.5}", "{loss: focal, target_threshold: 0.2}",
                             "{loss: focal, sum_classes: true}"})
    EXPECT_THAT(refusal(config), ::testing::HasSubstr("but loss is")) << config;
  EXPECT_EQ(refusal("{loss: focal, gamma: 3, alpha: null}"), "");
}

TEST(AucMetric, IsLeftOutOfManyClassesUnlessItIsWanted) {
  const auto has_auc = [](int64_t classes, const std::string& config) {
    const auto layout = data::SampleLayout::images(1, 1, 1, classes);
    return class_task_of("{type: classification, config: " + config + "}", layout)->find("auc") != nullptr;
  };
  EXPECT_TRUE(has_auc(100, "{}"));
  EXPECT_FALSE(has_auc(101, "{}"));
  EXPECT_TRUE(has_auc(101, "{auc: true}"));
  EXPECT_FALSE(has_auc(2, "{auc: false}"));
}

TEST(AucMetric, IsAHalfWithoutSamples) {
  const auto task = class_task_of("{type: classification}", data::SampleLayout::images(1, 1, 1, 3));
  comm::ProcessGroups alone;
  EXPECT_EQ(task->find("auc")->finish(Tally(task->parts(), at::kCPU).merge(alone)), 0.5);
}

TEST(Regression, HasTheMeanOverTheNumbersOfEachSample) {
  data::SampleLayout layout = data::SampleLayout::images(1, 3, 1, 2);
  layout.fields.back() = {.name = kTarget, .type = at::kFloat, .sizes = {2}, .fill = std::nan(""), .target = true};
  const std::vector<double> guessed{1, 2, 3, 4, 5, 6}, true_ones{1.5, 2, 0, 4, std::nan(""), std::nan("")};
  const at::Tensor targets = at::tensor(true_ones, at::kFloat).view({3, 2});
  const Batch batch{.fields = {{kImage, at::eye(3, at::kDouble).view({3, 1, 1, 3})}, {kTarget, targets}},
                    .samples = 3,
                    .samples_on_all_ranks = 3,
                    .weight = 2};
  // The errors are -0.5, 0, 3 and 0.
  const std::vector<std::pair<std::string, double>> sums{
      {"mse", (0.25 + 9) / 2}, {"l1", 3.5 / 2}, {"smooth_l1", (0.125 + 2.5) / 2}};
  for (const auto& [loss, sum] : sums) {
    Logits model(at::tensor(guessed, at::kDouble).view({3, 2}), at::kDouble);
    const auto task = class_task_of("{type: regression, config: {loss: " + loss + "}}", layout);
    EXPECT_EQ(task->best_metric().name, "loss");
    EXPECT_EQ(task->find("spearman"), nullptr);
    const ops::Loss found = task->loss(model, batch, {});
    EXPECT_NEAR(found.sum.item<double>(), sum, 1e-12) << loss;
    found.weighted.backward();
    const double slope = loss == "mse" ? 3 : 0.5;  // of the error 3, of which the mean has a half
    EXPECT_NEAR(model.gradient()[1][0].item<double>(), slope, 1e-12) << loss;
    EXPECT_EQ(model.gradient()[2].abs().max().item<double>(), 0);
    Tally tally(task->parts(), at::kCPU);
    tally.add_weight(2);
    task->evaluate(model, batch, tally);
    comm::ProcessGroups alone;
    const Totals totals = tally.merge(alone);
    EXPECT_NEAR(task->find("loss")->finish(totals), sum / 2, 1e-12) << loss;
    EXPECT_NEAR(task->find("mae")->finish(totals), 3.5 / 4, 1e-12);
  }
}

}  // namespace
}  // namespace gputrain::tasks

// Tests that every model of the catalog must pass.
#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <nlohmann/json.hpp>

#include "../../src/models/images/vit.hpp"
#include "../../src/models/texts/encoder.hpp"
#include "../../src/models/texts/gpt.hpp"
#include "gputrain/config/schema.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/nn/unit_memory.hpp"
#include "models/small_job.hpp"
#include "ops/compare.hpp"
#include "support/batches.hpp"

namespace gputrain::models {
namespace {

using testing_support::batch_of;
using testing_support::loss_of;
using testing_support::random_leaf;

constexpr int64_t kBatch = 4, kClasses = 7;

/// The entry's defaults, with large ones reduced.
config::Choice choice_of(const std::string& name) {
  auto options = catalog().find(name)->schema->create();
  if (name == "gpt") *static_cast<GptSpec*>(options.get()) = {.n_layer = 2, .n_head = 2, .n_embd = 32};
  if (name == "bert") {
    *static_cast<EncoderSpec*>(options.get()) = {.n_layer = 2, .n_head = 2, .n_embd = 32, .dropout = 0};
  }
  if (name.starts_with("vit"))
    *static_cast<VitSpec*>(options.get()) = {.patch_size = 8, .n_layer = 2, .n_head = 2, .n_embd = 32};
  const auto with = [&](const std::string& config) {
    return load_job("model: {type: " + name + ", config: {" + config + "}}\n").as<SmallJob>().model.architecture;
  };
  if (name.starts_with("convnext")) return with("blocks: [1, 1], channels: [24, 32], drop_path: 0");
  if (name == "unet") return with("channels: [8, 16, 24]");
  if (name.starts_with("mobilenet")) return with("dropout: 0");
  if (name.starts_with("efficientnet")) return with("dropout: 0, drop_path: 0");
  return {name, options};
}

/// A model with a small batch that it can learn.
struct Case {
  std::unique_ptr<Model> model;
  Batch batch;
};

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : catalog().entries()) names.push_back(entry.name);
  return names;
}

Case case_of(const std::string& name, const nn::Context& context = {}) {
  const InputSpec reads = catalog().reads(choice_of(name));
  const bool is_text = reads.reads_tokens();
  const DataFacts facts{.input_shape = is_text ? std::vector<int64_t>{6} : std::vector<int64_t>{3, 32, 32},
                        .num_classes = kClasses};
  Case made{.model = catalog().make(choice_of(name), context, facts)};
  nn::initialize(*made.model, 7);
  const at::Tensor images = random_leaf({kBatch, 3, 32, 32}, 5, at::kFloat).detach();
  if (reads.target == Target::pixels) {
    const at::Tensor targets = images.select(1, 0).gt(0).to(at::kLong) + 2 * images.select(1, 1).gt(0).to(at::kLong);
    made.batch = batch_of(images, targets);
    return made;
  }
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kBatch * (is_text ? 6 : 1); ++i) labels.push_back((3 * i + i / 5) % kClasses);
  const at::Tensor numbers = at::tensor(labels, at::kLong);
  const at::Tensor targets = is_text ? numbers.view({kBatch, 6}) : numbers;
  made.batch = batch_of(is_text ? targets.roll(1).contiguous() : images, targets);
  return made;
}

/// Named sizes of a model, all of them reduced to the same.
bool is_by_size(const std::string& name) { return name.starts_with("vit_") || name.starts_with("convnext_"); }

/// Slow tests that do not depend on depth use only resnet18 of the residual networks, mobilenet_v3_small of those of
/// inverted residuals, and only vit and convnext of those by size.
bool is_deep(const std::string& name) {
  return (name.starts_with("resnet") && name != "resnet18") || name == "mobilenet_v3_large" ||
         name.starts_with("efficientnet") || is_by_size(name);
}

TEST(Catalog, HasNoWrongRegistrations) { EXPECT_NO_THROW(config::refuse_wrong_registrations()); }

class EveryModel : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Catalog, EveryModel, testing::ValuesIn(model_names()),
                         [](const auto& entry) { return entry.param; });

TEST_P(EveryModel, GivesALogitPerClassInEitherMemoryOrder) {
  for (const bool channels_last : {false, true}) {
    if (channels_last && is_deep(GetParam())) continue;
    auto [model, batch] = case_of(GetParam(), {.channels_last = channels_last});
    const at::NoGradGuard no_grad;
    std::vector<int64_t> expected = batch.tensor(kTarget).sizes().vec();
    expected.push_back(kClasses);
    EXPECT_EQ(model->forward(batch.input()).sizes(), at::IntArrayRef(expected));
  }
}

TEST_P(EveryModel, ReachesEveryParameterWithGradient) {
  auto [model, batch] = case_of(GetParam());
  // A block may start as the identity (zeros in its last norm): the first step changes those zeros, the second
  // everything.
  loss_of(*model, batch, 0.1).weighted.backward();
  model->each_parameter([](const std::string& name, nn::Parameter& parameter) {
    ASSERT_TRUE(parameter.value.grad().defined()) << name;
    EXPECT_EQ(parameter.value.grad().sizes(), parameter.value.sizes()) << name;
    EXPECT_EQ(parameter.value.grad().strides(), parameter.value.strides()) << name;
    EXPECT_TRUE(parameter.value.grad().isfinite().all().item<bool>()) << name;
    EXPECT_GT(parameter.value.grad().abs().max().item<double>(), 0) << name;
  });
}

TEST_P(EveryModel, HoldsEachParameterInOneUnit) {
  auto [model, batch] = case_of(GetParam());
  std::map<at::TensorImpl*, int> found;
  std::set<std::string> names;
  for (const Unit& unit : model->units()) {
    EXPECT_TRUE(names.insert(unit.name).second) << unit.name;
    for (nn::Module* module : unit.modules) {
      module->each_parameter(
          [&](const std::string&, nn::Parameter& parameter) { ++found[parameter.value.unsafeGetTensorImpl()]; });
    }
  }
  model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    EXPECT_EQ(found[parameter.value.unsafeGetTensorImpl()], 1) << name;
  });
}

/// Weights are NaN but in the unit that was entered last, and those that it borrows.
class OneUnitAtATime final : public nn::UnitMemory {
 public:
  explicit OneUnitAtATime(Model& model) : model_(model) {
    for (const Unit& unit : model.units()) {
      values_.emplace_back();
      for (nn::Module* module : unit.modules) {
        unit_of_[module] = std::ssize(values_) - 1;
        module->each_parameter([&](const std::string&, nn::Parameter& one) {
          values_.back().emplace_back(one.value, one.value.detach().clone());
        });
      }
    }
    for (int64_t unit = 0; unit < std::ssize(values_); ++unit) show(unit, false);
    serve(this);
  }
  ~OneUnitAtATime() override { serve(nullptr); }

  void enter(const nn::Module& module) override {
    entered.insert(current_ = unit_of_.at(&module));
    for (int64_t unit = 0; unit < std::ssize(values_); ++unit) show(unit, unit == current_);
  }
  void borrow(const nn::Module& module) override { show(unit_of_.at(&module), true); }
  int64_t current() const override { return current_; }
  int64_t unit_of(const c10::StorageImpl*) const override { return -1; }
  void need(int64_t) override {}

  std::set<int64_t> entered;
  int64_t units() const { return std::ssize(values_); }

 private:
  void show(int64_t unit, bool shown) const {
    const at::NoGradGuard no_grad;
    for (const auto& [parameter, value] : values_[static_cast<size_t>(unit)]) {
      if (shown) {
        parameter.copy_(value);
      } else {
        parameter.fill_(std::numeric_limits<double>::quiet_NaN());
      }
    }
  }

  void serve(nn::UnitMemory* memory) {
    for (const Unit& unit : model_.units())
      for (nn::Module* module : unit.modules) module->set_unit_memory(memory);
  }

  Model& model_;
  std::map<const nn::Module*, int64_t> unit_of_;
  std::vector<std::vector<std::pair<at::Tensor, at::Tensor>>> values_;  // of each unit: parameter, its value
  int64_t current_ = -1;
};

TEST_P(EveryModel, ReadsWeightsOfTheUnitThatItAnnounces) {
  auto [model, batch] = case_of(GetParam());
  if (!catalog().abilities(choice_of(GetParam())).announces_units) GTEST_SKIP() << "it announces none";
  const at::NoGradGuard no_grad;
  const at::Tensor expected = model->forward(batch.input());
  OneUnitAtATime memory(*model);
  EXPECT_TRUE(model->forward(batch.input()).equal(expected));
  EXPECT_EQ(std::ssize(memory.entered), memory.units());
}

TEST_P(EveryModel, OverfitsOneBatch) {
  if (is_by_size(GetParam())) GTEST_SKIP() << "the model of any size stands for it";
  if (GetParam() == "resnet101" || GetParam() == "resnet152") GTEST_SKIP() << "resnet50 stands for it";
  if (GetParam() == "efficientnet_v2_m" || GetParam() == "efficientnet_v2_l")
    GTEST_SKIP() << "efficientnet_v2_s stands for it";
  auto [model, batch] = case_of(GetParam());
  const auto loss_per_target = [&](double rate) {
    const at::Tensor loss = loss_of(*model, batch).weighted / batch.weight;
    loss.backward();
    const at::NoGradGuard no_grad;
    model->each_parameter([&](const std::string&, nn::Parameter& parameter) {
      at::Tensor& gradient = parameter.value.mutable_grad();
      parameter.value.sub_(gradient / (gradient.norm() + 1e-8) * (parameter.value.norm() + 1e-2), rate);
      gradient.zero_();
    });
    return loss.item<double>();
  };
  const double first = loss_per_target(0.02);
  double last = first;
  for (int i = 0; i < 60 && last > 0.3 * first; ++i) last = loss_per_target(0.02);
  EXPECT_LE(last, 0.3 * first);
}

TEST_P(EveryModel, StartsEqualOnAnyThreadCount) {
  if (is_deep(GetParam())) GTEST_SKIP() << "a smaller one stands for it";
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  auto [one, batch] = case_of(GetParam());
  at::set_num_threads(3);
  auto [three, same_batch] = case_of(GetParam());
  at::set_num_threads(threads);
  std::map<std::string, at::Tensor> expected;
  one->each_parameter([&](const std::string& name, nn::Parameter& parameter) { expected[name] = parameter.value; });
  three->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    EXPECT_TRUE(parameter.value.equal(expected.at(name))) << name;
  });
}

TEST_P(EveryModel, ComputesIn16BitsWithFullGradients) {
  if (is_deep(GetParam())) GTEST_SKIP() << "a smaller one stands for it";
  auto [model, batch] = case_of(GetParam(), {.policy = ops::policy_of(ops::Precision::bf16)});
  const at::Tensor loss = loss_of(*model, batch, 0.1).weighted;
  loss.backward();
  EXPECT_TRUE(loss.isfinite().item<bool>());
  EXPECT_EQ(model->forward(batch.input()).scalar_type(), at::kBFloat16);
  model->each_parameter([](const std::string& name, nn::Parameter& parameter) {
    EXPECT_EQ(parameter.value.scalar_type(), at::kFloat) << name;
    EXPECT_EQ(parameter.value.grad().scalar_type(), at::kFloat) << name;
  });
}

TEST_P(EveryModel, MatchesLossInEveryPrecision) {
  // Dozens of batch norms over four samples amplify rounding.
  if (is_deep(GetParam())) GTEST_SKIP() << "a smaller one stands for it";
  const auto loss_in = [&](ops::Precision precision, bool channels_last) {
    auto [model, batch] = case_of(GetParam(), {.policy = ops::policy_of(precision), .channels_last = channels_last});
    return loss_of(*model, batch, 0.1).weighted.item<double>();
  };
  const double exact = loss_in(ops::Precision::fp64, false);
  for (const bool channels_last : {false, true}) {
    EXPECT_NEAR(loss_in(ops::Precision::fp32, channels_last) / exact, 1, 1e-5);
    EXPECT_NEAR(loss_in(ops::Precision::bf16, channels_last) / exact, 1, 0.05);
  }
}

/// Number of backward nodes whose names contain `word`.
int64_t steps_named(const std::string& word, const at::Tensor& loss) {
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> next{loss.grad_fn().get()};
  int64_t found = 0;
  while (!next.empty()) {
    auto* node = next.back();
    next.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    found += node->name().find(word) != std::string::npos ? 1 : 0;
    for (const auto& edge : node->next_edges()) next.push_back(edge.function.get());
  }
  return found;
}

// An activation in another memory order would silently use the slow operators.
TEST(Resnet18, FusesNormAddAndReluInNhwc) {
  auto [model, batch] = case_of("resnet18", {.channels_last = true});
  const at::Tensor loss = loss_of(*model, batch).weighted;
  EXPECT_EQ(steps_named("BatchNormRelu", loss), 17);
  EXPECT_EQ(steps_named("BatchNorm", loss), 20);  // the three shortcuts have no ReLU
  EXPECT_EQ(steps_named("Relu", loss), 17);
}

// Only models whose last operator keeps its result need a copy.
TEST(DenseHead, HasLogitsOverwrittenInPlace) {
  for (const auto precision : {ops::Precision::fp32, ops::Precision::bf16}) {
    for (const std::string name :
         {"mlp", "convnet", "resnet18", "vit", "mobilenet_v3_small", "efficientnet_v2_s", "gpt", "bert"}) {
      auto [model, batch] = case_of(name, {.policy = ops::policy_of(precision)});
      EXPECT_EQ(steps_named("Clone", loss_of(*model, batch).weighted), 0) << name;
    }
  }
}

TEST_P(EveryModel, EvaluatesHitsAndLossWithoutGraph) {
  if (is_deep(GetParam())) GTEST_SKIP() << "a smaller one stands for it";
  auto [model, batch] = case_of(GetParam());
  model->train(false);
  batch.tensor(kTarget).view({-1}).narrow(0, 1, 1).fill_(kIgnoreIndex);
  const tasks::Totals totals = testing_support::evaluate(*model, batch);
  const at::NoGradGuard no_grad;
  const at::Tensor logits = model->forward(batch.input());
  EXPECT_DOUBLE_EQ(totals.sums.at("loss"), loss_of(*model, batch).weighted.item<double>());
  EXPECT_EQ(totals.sums.at("top1"), (logits.argmax(-1) == batch.tensor(kTarget)).sum().item<int64_t>());
  const at::Tensor picked = logits.gather(-1, batch.tensor(kTarget).clamp_min(0).unsqueeze(-1));
  const at::Tensor rank = (logits > picked).sum(-1);
  EXPECT_EQ(totals.sums.at("top5"), ((rank < 5) & (batch.tensor(kTarget) != kIgnoreIndex)).sum().item<int64_t>());
}

}  // namespace
}  // namespace gputrain::models

#include "gputrain/optim/optimizer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "gputrain/core/random.hpp"
#include "gputrain/optim/gradients.hpp"
#include "optim_fixture.hpp"

namespace gputrain::optim {
namespace {

constexpr int kSteps = 20;

const std::vector<std::vector<int64_t>>& shapes() {
  static const std::vector<std::vector<int64_t>> shapes{{7, 5}, {7}, {3, 2, 3, 3}, {33}, {64, 9}, {}};
  return shapes;
}
constexpr const char* kShapesJson = "[[7,5],[7],[3,2,3,3],[33],[64,9],[]]";

/// Parameters in an arena, in three units; every other one decays.
struct Model {
  explicit Model(at::ScalarType type) {
    for (const auto& sizes : shapes()) {
      const auto options = at::TensorOptions().dtype(type).memory_format(
          sizes.size() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
      weights.push_back(at::empty(sizes, options).requires_grad_(true));
    }
    std::vector<device::ArenaTensor> arena_tensors;
    for (size_t i = 0; i < weights.size(); ++i) {
      arena_tensors.push_back({std::to_string(i), weights[i], static_cast<int64_t>(i / 2), i % 2 == 0});
    }
    arena = std::make_unique<device::Arena>(arena_tensors);
  }

  /// Copies consecutive numbers into all values or all gradients; returns the position after them.
  const double* fill(bool gradients, const double* from) const {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& weight : weights) {
      const auto numbers =
          at::from_blob(const_cast<double*>(from), weight.sizes(), at::TensorOptions().dtype(at::kDouble));
      (gradients ? weight.grad() : weight.detach()).copy_(numbers);
      from += weight.numel();
    }
    return from;
  }

  std::vector<double> values() const {
    std::vector<double> all;
    for (const at::Tensor& weight : weights) {
      const at::Tensor row = weight.detach().contiguous().to(at::kDouble).reshape(-1);
      all.insert(all.end(), row.const_data_ptr<double>(), row.const_data_ptr<double>() + row.numel());
    }
    return all;
  }

  std::vector<at::Tensor> weights;
  std::unique_ptr<device::Arena> arena;
};

std::vector<double> start_and_gradients() {
  size_t numel = 0;
  for (const auto& sizes : shapes()) numel += static_cast<size_t>(c10::multiply_integers(sizes));
  RandomStream random(1, 2);
  std::vector<double> numbers(numel * (kSteps + 1));
  for (double& number : numbers) number = static_cast<float>(random.uniform(-1, 1));
  return numbers;
}

at::Tensor rate(double lr) { return at::full({}, lr, at::kDouble); }

struct Case {
  std::string yaml, reference;  // our section; torch's rule and options
  double max_norm = 0;
  double float_tolerance = 5e-6;
  double lr = 0.05;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> cases{
      {"type: sgd", R"("sgd",{"lr":0.05})"},
      {"{type: sgd, momentum: 0.9}", R"("sgd",{"lr":0.05,"momentum":0.9})"},
      {"{type: sgd, weight_decay: 0.1}", R"("sgd",{"lr":0.05,"weight_decay":0.1})"},
      {"{type: sgd, momentum: 0.9, weight_decay: 0.1}", R"("sgd",{"lr":0.05,"momentum":0.9,"weight_decay":0.1})"},
      {"{type: sgd, momentum: 0.8, nesterov: true, weight_decay: 0.01}",
       R"("sgd",{"lr":0.05,"momentum":0.8,"nesterov":true,"weight_decay":0.01})", 1.5},
      {"{type: adamw, weight_decay: 0}", R"("adamw",{"lr":0.05})"},
      {"type: adamw", R"("adamw",{"lr":0.05,"weight_decay":0.01})"},
      {"{type: adamw, betas: [0.8, 0.95], eps: 1e-5, weight_decay: 0.2}",
       R"("adamw",{"lr":0.05,"betas":[0.8,0.95],"eps":1e-5,"weight_decay":0.2})"},
      {"{type: adamw, weight_decay: 0.1}", R"("adamw",{"lr":0.05,"weight_decay":0.1})", 0.7},
      {"type: lion", R"("lion",{"lr":0.05})"},
      {"{type: lion, betas: [0.95, 0.98], weight_decay: 0.3}",
       R"("lion",{"lr":0.05,"betas":[0.95,0.98],"weight_decay":0.3})", 0.7},
      {"type: lamb", R"("lamb",{"lr":0.05,"weight_decay":0.01})"},
      {"{type: lamb, betas: [0.8, 0.95], eps: 1e-5, weight_decay: 0.2, always_adapt: true, trust_clip: true}",
       R"("lamb",{"lr":0.05,"betas":[0.8,0.95],"eps":1e-5,"weight_decay":0.2,"always_adapt":true,"trust_clip":true})",
       0.7},
      // Muon rounds to bf16 within its update, so that what fp32 rounds otherwise may differ by a bit of bf16.
      {"type: muon", R"("muon",{"lr":0.05,"weight_decay":0.1,"adjust_lr_fn":"match_rms_adamw"})", 0, 2e-3},
      {"{type: muon, adjust_lr_fn: original, momentum: 0.8, nesterov: false, ns_steps: 3, weight_decay: 0.2, "
       "adamw: [\"4\"], betas: [0.8, 0.95], eps: 1e-5}",
       R"("muon",{"lr":0.05,"weight_decay":0.2,"momentum":0.8,"nesterov":false,"ns_steps":3,"adamw":[[64,9]],)"
       R"("others":{"betas":[0.8,0.95],"eps":1e-5}})",
       0.7, 2e-3},
      {"type: adafactor", R"("adafactor",{"lr":0.05})"},
      {"{type: adafactor, beta2_decay: -0.5, eps1: 1e-3, eps2: 0.3, d: 1.2, weight_decay: 0.2}",
       R"("adafactor",{"lr":0.5,"beta2_decay":-0.5,"eps":[1e-3,0.3],"d":1.2,"weight_decay":0.2})", 0.7, 5e-6, 0.5},
      {"type: schedule_free_adamw", R"("schedule_free_adamw",{"lr":0.05})"},
      {"{type: schedule_free_adamw, betas: [0.8, 0.95], eps: 1e-5, weight_decay: 0.2, r: 1, weight_lr_power: 1}",
       R"("schedule_free_adamw",{"lr":0.05,"betas":[0.8,0.95],"eps":1e-5,"weight_decay":0.2,"r":1,"weight_lr_power":1})",
       0.7},
      {"{type: adamw8bit, weight_decay: 0.1}", R"("adamw",{"lr":0.05,"weight_decay":0.1})", 0.7},
      // What fp32 rounds otherwise may get the next of 256 values.
      {"{type: adamw8bit, min_8bit_size: 0}", R"("adamw8bit",{"lr":0.05,"weight_decay":0.01,"min_8bit_size":0})", 0,
       2e-3},
      {"{type: adamw8bit, min_8bit_size: 40, betas: [0.8, 0.95], eps: 1e-5, weight_decay: 0.2}",
       R"("adamw8bit",{"lr":0.05,"min_8bit_size":40,"betas":[0.8,0.95],"eps":1e-5,"weight_decay":0.2})", 0.7, 2e-3}};
  return cases;
}

std::vector<double> trained(const Case& tested, at::ScalarType type, const std::vector<double>& numbers) {
  const Model model(type);
  const std::unique_ptr<Optimizer> optimizer = optimizer_of(tested.yaml, *model.arena);
  const at::NoGradGuard no_grad;
  const double* next = model.fill(false, numbers.data());
  for (int step = 0; step < kSteps; ++step) {
    next = model.fill(true, next);
    GradientOptions options;
    if (tested.max_norm > 0) options.max_norm = tested.max_norm;
    const GradientReport report = measure_gradient({model.arena->gradients()}, options);
    optimizer->step({.lr = rate(tested.lr), .found_inf = report.found_inf, .divisor = report.divisor});
  }
  optimizer->exchange_average();
  return model.values();
}

class OptimizerParity : public OptimTest {};

TEST_F(OptimizerParity, MatchesTorchAndTimmOverTwentySteps) {
  GPUTRAIN_NEED_REFERENCE("torch");
  GPUTRAIN_NEED_REFERENCE("timm");
  const std::vector<double> numbers = start_and_gradients();
  std::string json;
  for (const Case& tested : cases()) {
    json += (json.empty() ? "[[" : ",[") + tested.reference + "," + std::to_string(tested.max_norm) + "]";
  }
  const std::vector<double> expected =
      ask_reference("optimizers", {write_doubles("given", numbers), kShapesJson, json + "]"});
  size_t next = 0;
  for (const Case& tested : cases()) {
    for (const auto& [type, tolerance] :
         {std::pair(at::kDouble, 1e-12), std::pair(at::kFloat, tested.float_tolerance)}) {
      const std::vector<double> found = trained(tested, type, numbers);
      ASSERT_LE(next + found.size(), expected.size());
      double distance = 0;
      for (const double value : found) distance = std::max(distance, std::abs(value - expected[next++]));
      EXPECT_LE(distance, tolerance) << tested.yaml << " in " << at::toString(type);
    }
  }
  EXPECT_EQ(next, expected.size());
}

const char* rule_name(size_t index) {
  constexpr std::array kNames{"Sgd",       "SgdWithMomentum",  "AdamW", "Lion", "Lamb", "Muon", "Adafactor",
                              "AdamW8bit", "ScheduleFreeAdamW"};
  return kNames.at(index);
}

class EveryOptimizer : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Rules, EveryOptimizer,
                         ::testing::Values("type: sgd", "{type: sgd, momentum: 0.9, weight_decay: 0.1}", "type: adamw",
                                           "{type: lion, weight_decay: 0.1}", "type: lamb", "type: muon",
                                           "type: adafactor", "{type: adamw8bit, min_8bit_size: 0}",
                                           "{type: schedule_free_adamw, weight_decay: 0.1}"),
                         [](const auto& entry) { return rule_name(entry.index); });

TEST(Optimizers, AreAllTested) {
  for (const auto& entry : catalog().entries()) {
    EXPECT_TRUE(std::ranges::any_of(cases(), [&](const Case& one) {
      return one.yaml.find(entry.name) != std::string::npos;
    })) << entry.name;
  }
}

std::vector<at::Tensor> copy_of_state(Optimizer& optimizer) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : optimizer.state().large()) copies.push_back(tensor.clone());
  for (const auto& [name, tensor] : optimizer.state().scalars) copies.push_back(tensor.clone());
  return copies;
}

TEST_P(EveryOptimizer, MakesNothingOfANonFiniteFirstGradient) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const Model skipping(at::kFloat), plain(at::kFloat);
    const auto one = optimizer_of(GetParam(), *skipping.arena), other = optimizer_of(GetParam(), *plain.arena);
    const at::NoGradGuard no_grad;
    const std::vector<double> numbers = start_and_gradients();
    const double* first = skipping.fill(false, numbers.data());
    plain.fill(false, numbers.data());
    skipping.arena->gradients().fill_(bad);
    one->step({.lr = rate(0.1), .found_inf = at::ones({1})});
    EXPECT_EQ(skipping.values(), plain.values());
    skipping.fill(true, first);
    plain.fill(true, first);
    for (Optimizer* optimizer : {one.get(), other.get()})
      optimizer->step({.lr = rate(0.1), .found_inf = at::zeros({1})});
    EXPECT_EQ(skipping.values(), plain.values());
  }
}

TEST_P(EveryOptimizer, DividesTheGradientByTheDivisor) {
  const Model scaled(at::kFloat), plain(at::kFloat);
  const auto one = optimizer_of(GetParam(), *scaled.arena), other = optimizer_of(GetParam(), *plain.arena);
  const at::NoGradGuard no_grad;
  const std::vector<double> numbers = start_and_gradients();
  const double* next = scaled.fill(false, numbers.data());
  plain.fill(false, numbers.data());
  for (int step = 0; step < 3; ++step) {
    plain.fill(true, next);
    next = scaled.fill(true, next);
    scaled.arena->gradients().mul_(1024);
    one->step({.lr = rate(0.1), .found_inf = at::zeros({1}), .divisor = at::full({1}, 1024.0f)});
    other->step({.lr = rate(0.1)});
  }
  EXPECT_EQ(scaled.values(), plain.values());
}

TEST_P(EveryOptimizer, ChangesNothingOnNonFiniteGradient) {
  const Model model(at::kFloat);
  const std::unique_ptr<Optimizer> optimizer = optimizer_of(GetParam(), *model.arena);
  const at::NoGradGuard no_grad;
  const std::vector<double> numbers = start_and_gradients();
  model.fill(true, model.fill(false, numbers.data()));
  optimizer->step({.lr = rate(0.1), .found_inf = at::zeros({1})});

  const std::vector<double> values = model.values();
  const std::vector<at::Tensor> before = copy_of_state(*optimizer);
  model.arena->gradients().fill_(std::numeric_limits<float>::infinity());
  optimizer->step({.lr = rate(0.1), .found_inf = at::ones({1})});
  EXPECT_EQ(model.values(), values);
  const std::vector<at::Tensor> after = copy_of_state(*optimizer);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i].equal(after[i]));
}

TEST_P(EveryOptimizer, ContinuesExactlyFromRestoredState) {
  const std::vector<double> numbers = start_and_gradients();
  const at::NoGradGuard no_grad;
  const Model first(at::kFloat), second(at::kFloat);
  const std::unique_ptr<Optimizer> straight = optimizer_of(GetParam(), *first.arena);
  const double* next = first.fill(false, numbers.data());
  for (int step = 0; step < 3; ++step) {
    next = first.fill(true, next);
    straight->step({.lr = rate(0.1)});
  }
  const std::unique_ptr<Optimizer> resumed = optimizer_of(GetParam(), *second.arena);
  second.arena->values().copy_(first.arena->values());
  const Optimizer::State from = straight->state(), to = resumed->state();
  for (size_t i = 0; i < from.large().size(); ++i) to.large()[i].copy_(from.large()[i]);
  for (size_t i = 0; i < from.scalars.size(); ++i) to.scalars[i].second.copy_(from.scalars[i].second);
  for (int step = 0; step < 3; ++step) {
    first.fill(true, next);
    next = second.fill(true, next);
    straight->step({.lr = rate(0.1)});
    resumed->step({.lr = rate(0.1)});
  }
  EXPECT_EQ(first.values(), second.values());
}

TEST_P(EveryOptimizer, KeepsArenaPaddingAtZero) {
  const Model model(at::kFloat);
  const std::unique_ptr<Optimizer> optimizer = optimizer_of(GetParam(), *model.arena);
  const at::NoGradGuard no_grad;
  const std::vector<double> numbers = start_and_gradients();
  model.fill(true, model.fill(false, numbers.data()));
  for (int step = 0; step < 3; ++step) optimizer->step({.lr = rate(0.1)});
  for (const at::Tensor& weight : model.weights) weight.detach().zero_();
  EXPECT_EQ(model.arena->values().abs().sum().item<float>(), 0);
}

// On a CPU no kernel writes the copy, whatever an earlier update noted: it is cast from the values.
TEST_P(EveryOptimizer, LeavesWorkingCopyToBeRemade) {
  const at::Tensor weight = at::full({3, 4}, 0.5, at::kFloat).requires_grad_(true);
  device::Arena arena({{"weight", weight}}, {.working_type = at::kBFloat16});
  EXPECT_TRUE(copy_to_write(arena).is_same(arena.working_copy()->tensor()));
  const std::unique_ptr<Optimizer> optimizer = optimizer_of(GetParam(), arena);
  const at::NoGradGuard no_grad;
  weight.fill_(0.5);
  for (int step = 0; step < 3; ++step) {
    {
      const device::Reading reading(arena.working_copy());
      EXPECT_TRUE(device::working_view(weight, at::kBFloat16).equal(weight.to(at::kBFloat16)));
    }
    weight.grad().fill_(1);
    const at::Tensor before = weight.clone();
    optimizer->step({.lr = rate(0.1)});
    EXPECT_FALSE(weight.to(at::kBFloat16).equal(before.to(at::kBFloat16)));
  }
  arena.own({});
  EXPECT_FALSE(copy_to_write(arena).defined());  // this rank owns nothing: the copy would be incomplete
}

/// Bytes of state beside scalars for one weight of these sizes.
size_t state_bytes(const std::string& yaml, const std::vector<int64_t>& sizes, device::Role role) {
  const at::Tensor weight = at::empty(sizes, at::kFloat).requires_grad_(true);
  const device::Arena arena({{.name = "weight", .value = weight, .role = role}});
  size_t bytes = 0;
  for (const at::Tensor& tensor : optimizer_of(yaml, arena)->state().large()) bytes += tensor.nbytes();
  return bytes;
}

TEST(StateBytes, AreThoseOfFactorsAndOfEightBits) {
  const auto weight = device::Role::weight;
  EXPECT_EQ(state_bytes("type: adamw", {512, 256}, weight), 2U * 512 * 256 * 4);
  EXPECT_EQ(state_bytes("{type: adamw, averages: bf16}", {512, 256}, weight), 2U * 512 * 256 * 2);
  EXPECT_EQ(state_bytes("type: adafactor", {512, 256}, weight), (512U + 256) * 4);
  EXPECT_EQ(state_bytes("type: adafactor", {512}, weight), 512U * 4);
  EXPECT_EQ(state_bytes("type: adamw8bit", {512, 256}, weight), 2U * (512 * 256 + 512 * 4));
  EXPECT_EQ(state_bytes("type: adamw8bit", {512, 256}, device::Role::embedding), 2U * 512 * 256 * 4);
  EXPECT_EQ(state_bytes("type: adamw8bit", {4095}, weight), 2U * 4095 * 4);
}

// The error of averages of 8 bits: of the way that fp32 AdamW goes in twenty steps.
TEST(AdamW8bit, GoesTheWayOfAdamWWithinTwoPercent) {
  const std::vector<double> numbers = start_and_gradients();
  const auto narrow = trained({"{type: adamw8bit, min_8bit_size: 0}", ""}, at::kFloat, numbers),
             wide = trained({"type: adamw", ""}, at::kFloat, numbers);
  double error = 0, way = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    error += std::pow(narrow[i] - wide[i], 2);
    way += std::pow(wide[i] - numbers[i], 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LT(std::sqrt(error / way), 0.02);
}

// A gradient that is seen once, beside a much larger one: its square would be 0 in 8 bits while its average is not.
TEST(AdamW8bit, TakesNoLongStepFromASmallSquare) {
  const at::Tensor weight = at::empty({2}, at::kFloat).requires_grad_(true);
  const device::Arena arena({{"weight", weight}});
  const auto optimizer = optimizer_of("{type: adamw8bit, min_8bit_size: 0, weight_decay: 0}", arena);
  const at::NoGradGuard no_grad;
  weight.zero_();
  for (int step = 0; step < 5; ++step) {
    weight.grad()[0].fill_(1);
    weight.grad()[1].fill_(step == 0 ? 1e-4 : 0);
    optimizer->step({.lr = rate(0.1)});
  }
  EXPECT_LT(weight.abs().max().item<float>(), 0.6);
}

TEST(UpdateGroups, SplitTheArenaOnceByDecayAndNotAtAllWithoutIt) {
  const Model model(at::kFloat);
  const std::vector<UpdateGroup> groups = update_groups(*model.arena, 0.1);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[0].ranges.size(), 3u);
  EXPECT_EQ(groups[1].weight_decay, 0);
  const std::vector<UpdateGroup> all = update_groups(*model.arena, 0);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].values(*model.arena)[0].numel(), model.arena->values().numel());
}

}  // namespace
}  // namespace gputrain::optim

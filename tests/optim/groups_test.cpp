// Parameter groups and layer-wise decay, against torch.optim's parameter groups.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include "gputrain/core/random.hpp"
#include "optim_fixture.hpp"

namespace gputrain::optim::of_groups {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 20;
constexpr double kPeak = 0.05;

/// Six parameters of three units; those at odd places have no decay.
const std::vector<std::string> kNames{"stem.w", "stem.b", "h.0.w", "h.0.b", "head.w", "head.b"};
const std::vector<std::vector<int64_t>> kShapes{{7, 5}, {7}, {3, 2, 3, 3}, {33}, {64, 9}, {}};
constexpr const char* kShapesJson = "[[7,5],[7],[3,2,3,3],[33],[64,9],[]]";

double rate_at(int step) { return kPeak * (1 - step / 40.0); }

/// One rank of an arena that `ranks` share out as ZeRO stage 2 does; alone, it has everything.
struct Rank {
  Rank(const std::string& yaml, at::ScalarType type, int rank, int ranks) {
    const auto spec = spec_of<OptimizerSpec>(yaml);
    std::vector<device::ArenaTensor> arena_tensors;
    for (size_t i = 0; i < kNames.size(); ++i) {
      weights.push_back(at::empty(kShapes[i], at::TensorOptions().dtype(type)).requires_grad_(true));
      const auto unit = static_cast<int64_t>(i / 2);
      arena_tensors.push_back({.name = kNames[i],
                               .value = weights.back(),
                               .unit = unit,
                               .decays = i % 2 == 0,
                               .settings = spec.settings_of(kNames[i], unit, 3)});
    }
    const bool in_whole_tensors = catalog().abilities(spec.type).whole_tensors;
    arena = std::make_unique<device::Arena>(
        arena_tensors, device::ArenaOptions{.gradients = ranks > 1 ? device::Kept::owned : device::Kept::whole,
                                            .shards = in_whole_tensors ? 1 : ranks});
    if (ranks > 1) arena->own(in_whole_tensors ? half_of_tensors(rank) : arena->shard_of(rank));
    optimizer = catalog().make(spec.type, *arena);
  }

  /// Copies consecutive numbers into values, or into what the rank keeps of the gradients.
  const double* fill(bool gradients, const double* from) const {
    const at::NoGradGuard no_grad;
    const at::Tensor flat = gradients ? at::empty_like(arena->values()) : arena->values();
    for (const std::string& name : kNames) {
      const auto segment = std::ranges::find(arena->segments(), name, &device::Segment::name);
      arena->view(flat, *segment)
          .copy_(at::from_blob(const_cast<double*>(from), segment->sizes, at::TensorOptions().dtype(at::kDouble)));
      from += segment->numel;
    }
    for (const device::Piece& piece : arena->owned()) {
      if (!gradients) break;
      const int64_t at = arena->keeps_owned_gradients_only() ? piece.at : piece.range.begin, size = piece.range.size();
      arena->kept_gradients().narrow(0, at, size).copy_(flat.narrow(0, piece.range.begin, size));
    }
    return from;
  }

  device::Shard half_of_tensors(int rank) const {
    const int64_t middle = arena->segments()[kNames.size() / 2].offset;
    return {rank == 0 ? device::Range{.begin = 0, .end = middle}
                      : device::Range{.begin = middle, .end = arena->numel()}};
  }

  std::vector<at::Tensor> weights;
  std::unique_ptr<device::Arena> arena;
  std::unique_ptr<Optimizer> optimizer;
};

/// The weights after all steps, put together from what each rank owns.
std::vector<double> trained(const std::string& yaml, at::ScalarType type, int ranks,
                            const std::vector<double>& numbers) {
  const at::NoGradGuard no_grad;
  std::vector<Rank> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(yaml, type, rank, ranks);
  for (const Rank& rank : all) {
    const double* next = rank.fill(false, numbers.data());
    for (int step = 0; step < kSteps; ++step) {
      next = rank.fill(true, next);
      rank.optimizer->step({.lr = at::full({}, rate_at(step), at::kDouble)});
    }
    rank.optimizer->exchange_average();
    if (&rank == &all[0]) continue;
    for (const auto& [range, at] : rank.arena->owned()) {
      const auto part = [&range = range](const Rank& of) {
        return of.arena->values().narrow(0, range.begin, range.size());
      };
      part(all[0]).copy_(part(rank));
    }
  }
  std::vector<double> values;
  for (const at::Tensor& weight : all[0].weights) {
    const at::Tensor row = weight.detach().contiguous().to(at::kDouble).reshape(-1);
    values.insert(values.end(), row.const_data_ptr<double>(), row.const_data_ptr<double>() + row.numel());
  }
  return values;
}

struct Case {
  std::string yaml;       // beside `type` and `lr`
  std::string reference;  // [rate, weight decay] of each parameter, as PyTorch's groups have them
};

/// `options`: the rule's own, with a weight decay of 0.1.
std::vector<Case> cases() {
  return {
      {R"(groups: [{match: "head.*", lr: 0.1x}])", "[[0.05,0.1],[0.05,0],[0.05,0.1],[0.05,0],[0.005,0.1],[0.005,0]]"},
      {R"(groups: [{match: ["*.b", "h.*"], lr: 2e-2, weight_decay: 0.3}, {match: "*", lr: 0.5x}])",
       "[[0.025,0.1],[0.02,0],[0.02,0.3],[0.02,0],[0.025,0.1],[0.02,0]]"},
      {"layer_decay: 0.5", "[[0.0125,0.1],[0.0125,0],[0.025,0.1],[0.025,0],[0.05,0.1],[0.05,0]]"},
      {R"(layer_decay: 0.5, groups: [{match: "stem.*", lr: 2x, weight_decay: 0}, {match: "h.0.w", lr: 0.01}])",
       "[[0.025,0],[0.025,0],[0.01,0.1],[0.025,0],[0.05,0.1],[0.05,0]]"}};
}

std::vector<double> start_and_gradients() {
  size_t numel = 0;
  for (const auto& sizes : kShapes) numel += static_cast<size_t>(c10::multiply_integers(sizes));
  RandomStream random(3, 4);
  std::vector<double> numbers(numel * (kSteps + 1));
  for (double& number : numbers) number = static_cast<float>(random.uniform(-1, 1));
  return numbers;
}

class GroupsParity : public OptimTest {};

TEST_F(GroupsParity, EqualTorchsParameterGroupsOnOneRankAndOnTwo) {
  GPUTRAIN_NEED_REFERENCE("torch");
  GPUTRAIN_NEED_REFERENCE("timm");
  const std::vector<double> numbers = start_and_gradients();
  const std::vector<std::pair<std::string, std::string>> rules{
      {"type: adamw, betas: [0.8, 0.95], weight_decay: 0.1", R"("adamw",{"betas":[0.8,0.95]})"},
      {"type: sgd, momentum: 0.9, weight_decay: 0.1", R"("sgd",{"momentum":0.9})"},
      {"type: lion, weight_decay: 0.1", R"("lion",{})"},
      {"type: lamb, weight_decay: 0.1", R"("lamb",{})"},
      {"type: muon, weight_decay: 0.1, adamw: []", R"("muon",{"adjust_lr_fn":"match_rms_adamw"})"},
      {"type: adafactor, weight_decay: 0.1", R"("adafactor",{})"},
      {"type: adamw8bit, min_8bit_size: 0, weight_decay: 0.1", R"("adamw8bit",{"min_8bit_size":0})"},
      {"type: schedule_free_adamw, weight_decay: 0.1", R"("schedule_free_adamw",{})"}};
  std::string json;
  for (const auto& [yaml, reference] : rules) {
    for (const Case& tested : cases()) json += (json.empty() ? "[[" : ",[") + reference + "," + tested.reference + "]";
  }
  const std::vector<double> expected =
      ask_reference("groups", {write_doubles("given", numbers), kShapesJson, json + "]"});
  size_t next = 0;
  for (const auto& [rule, reference] : rules) {
    for (const Case& tested : cases()) {
      const std::string yaml = "{lr: 0.05, " + rule + ", " + tested.yaml + "}";
      const bool rounds = rule.find("muon") != std::string::npos || rule.find("8bit") != std::string::npos;
      const double of_float = rounds ? 2e-3 : 5e-6;  // to bf16 or 8 bits, within
      for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-12), std::pair(at::kFloat, of_float)}) {
        const std::vector<double> one = trained(yaml, type, 1, numbers), two = trained(yaml, type, 2, numbers);
        EXPECT_EQ(one, two) << yaml;
        ASSERT_LE(next + one.size(), expected.size());
        double distance = 0;
        for (const double value : one) distance = std::max(distance, std::abs(value - expected[next++]));
        EXPECT_LE(distance, tolerance) << yaml << " in " << at::toString(type);
      }
    }
  }
  EXPECT_EQ(next, expected.size());
}

TEST(UpdateGroups, JoinNeighboursOfEqualSettingsAcrossUnits) {
  const Rank rank(R"({lr: 0.1, groups: [{match: ["*.b", "head.*"], lr: 0.1x}]})", at::kFloat, 0, 1);
  const auto groups = update_groups(*rank.arena, 0);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].ranges.size(), 2u);  // stem.w, h.0.w
  EXPECT_EQ(groups[1].ranges.size(), 2u);  // stem.b; h.0.b with both of the head
  EXPECT_EQ(groups[1].lr_factor, 0.1);
}

TEST(UpdateGroups, LeaveTheRateAloneWhereTheyHaveNone) {
  const at::Tensor lr = at::full({}, 0.1, at::kDouble);
  EXPECT_TRUE(UpdateGroup{}.rate(lr).is_same(lr));
  EXPECT_DOUBLE_EQ(UpdateGroup{.lr_factor = 0.5}.rate(lr).item<double>(), 0.05);
}

/// The weights after all steps; h.0.w and head.w are trained after 8 of them.
std::vector<double> trained_late(const std::string& yaml, const std::vector<double>& numbers) {
  const at::NoGradGuard no_grad;
  const Rank rank(yaml, at::kDouble, 0, 1);
  const std::set<std::string> late{"h.0.w", "head.w"};
  const double* next = rank.fill(false, numbers.data());
  for (int step = 0; step < kSteps; ++step) {
    next = rank.fill(true, next);
    std::map<std::string, at::Tensor> kept;  // what is not trained yet
    for (const device::Segment& segment : rank.arena->segments()) {
      if (step >= 8 || !late.contains(segment.name)) continue;
      kept[segment.name] = rank.arena->view(rank.arena->values(), segment).clone();
      rank.arena->view(rank.arena->gradients(), segment).zero_();
    }
    rank.optimizer->step({.lr = at::full({}, kPeak, at::kDouble)});
    for (const device::Segment& segment : rank.arena->segments()) {
      if (kept.contains(segment.name)) rank.arena->view(rank.arena->values(), segment).copy_(kept[segment.name]);
    }
    if (step == 7) {
      EXPECT_EQ(rank.optimizer->updates(), 8);
      for (const auto& [name, state] : rank.optimizer->state().flat) {
        for (const auto& segment : rank.arena->segments())
          if (late.contains(segment.name)) rank.arena->view(state, segment).zero_();
      }
      rank.optimizer->count_since({{"h.0.w", 8}, {"head.w", 8}});
    }
    if (step == 12) rank.optimizer->count_since({{"h.0.w", 8}, {"head.w", 8}});  // as a resumed run does
  }
  rank.optimizer->exchange_average();
  std::set<std::string> saved;
  for (const auto& [name, tensor] : rank.optimizer->state().scalars) saved.insert(name);
  EXPECT_TRUE(saved.contains("step") && saved.contains("since.h.0.w") && saved.contains("since.head.w")) << yaml;
  std::vector<double> values;
  for (const at::Tensor& weight : rank.weights) {
    const at::Tensor row = weight.detach().contiguous().reshape(-1);
    values.insert(values.end(), row.const_data_ptr<double>(), row.const_data_ptr<double>() + row.numel());
  }
  return values;
}

// PyTorch counts the updates of each parameter: one that is added later begins at 0.
TEST_F(GroupsParity, CountsTheUpdatesOfWhatIsTrainedLateFromThere) {
  GPUTRAIN_NEED_REFERENCE("torch");
  GPUTRAIN_NEED_REFERENCE("timm");
  const std::vector<double> numbers = start_and_gradients();
  const std::vector<std::string> rules{"type: adamw",
                                       "type: lamb",
                                       "type: muon, adamw: []",
                                       "type: adafactor",
                                       "type: adamw8bit, min_8bit_size: 0",
                                       "type: schedule_free_adamw"};
  const std::vector<double> expected =
      ask_reference("late", {write_doubles("given", numbers), kShapesJson, "[2, 4]", "8",
                             R"([["adamw",{"lr":0.05}],["lamb",{"lr":0.05}],)"
                             R"(["muon",{"lr":0.05,"adjust_lr_fn":"match_rms_adamw"}],["adafactor",{"lr":0.05}],)"
                             R"(["adamw8bit",{"lr":0.05,"min_8bit_size":0}],["schedule_free_adamw",{"lr":0.05}]])"});
  size_t at = 0;
  for (const std::string& rule : rules) {
    double distance = 0;
    for (const double value : trained_late("{lr: 0.05, " + rule + ", weight_decay: 0.1}", numbers)) {
      ASSERT_LT(at, expected.size());
      distance = std::max(distance, std::abs(value - expected[at++]));
    }
    EXPECT_LE(distance, 1e-12) << rule;
  }
  EXPECT_EQ(at, expected.size());
}

std::string refusal_of(const std::string& yaml) {
  try {
    spec_of<OptimizerSpec>(yaml);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(OptimizerGroups, RefuseWhatMakesNoSense) {
  EXPECT_EQ(refusal_of("{groups: [{match: a, lr: 1e-4}, {match: [b, c], lr: 0.1x, weight_decay: 0}]}"), "accepted");
  for (const char* lr : {"0", "-1e-4", "0.1y", "x", "fast", "nan", "1e999"})
    EXPECT_THAT(refusal_of("{groups: [{match: a, lr: " + std::string(lr) + "}]}"),
                HasSubstr("or a factor such as 0.1x"));
  EXPECT_THAT(refusal_of("{groups: [{lr: 0.1x}]}"), HasSubstr("'groups[0].match' is missing"));
  EXPECT_THAT(refusal_of("{groups: [{match: a, wd: 0.1}]}"), HasSubstr("wd"));
  EXPECT_THAT(refusal_of("{groups: [{match: []}]}"), HasSubstr("a group needs a pattern"));
  EXPECT_THAT(refusal_of("{layer_decay: 1.5}"), HasSubstr("layer_decay"));
  EXPECT_THAT(refusal_of("{layer_decay: 0}"), HasSubstr("layer_decay"));
}

}  // namespace
}  // namespace gputrain::optim::of_groups

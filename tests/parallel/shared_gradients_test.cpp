// ZeRO: ranks that each update a shard, with whole or sharded gradients, against one process that has everything.
#include <chrono>
#include <limits>
#include <string>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "gputrain/optim/grad_scaler.hpp"
#include "gputrain/optim/gradients.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "optim/optim_fixture.hpp"
#include "parallel/small_model.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::distance;
using gputrain::testing::expect_success;
using gputrain::testing::fail;
using gputrain::testing::given;
using gputrain::testing::join;
using gputrain::testing::owned_of;
using gputrain::testing::RankBody;
using gputrain::testing::rows;
using gputrain::testing::SmallModel;

constexpr device::JoinLimits kUnitBuckets{.bytes = 2600, .first_bytes = 600};  // one bucket per unit of the small model
constexpr int64_t kAllRows = 24, kOverflowingStep = 7;

device::Kept kept_gradients() { return given("STAGE") == 2 ? device::Kept::owned : device::Kept::whole; }

/// A model with everything that updates it, in one process or on a rank.
struct Learner {
  SmallModel model;
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::GradScaler scaler{at::kCPU, {.initial_scale = 1024, .growth_interval = 3}};

  explicit Learner(device::Kept kept, int64_t shards = 1) : model(kept, shards) {}
  void begin() { optimizer = optim::optimizer_of("{type: adamw, weight_decay: 0.1}", model.arena); }

  void backward(const gputrain::testing::Rows& data, bool with_third) const {
    const at::Tensor seed = at::full({}, scaler.scale().item<double>() / kAllRows, at::kDouble);
    model.loss_sum(data.inputs, data.targets, with_third).backward(seed);
  }

  optim::GradientReport update(const std::function<void(const at::Tensor&)>& all_reduce_sum) {
    const at::NoGradGuard no_grad;
    const auto report =
        optim::measure_gradient(model.arena.gradients_of_pieces(),
                                {.scale = scaler.scale(), .max_norm = 2.0, .all_reduce_sum = all_reduce_sum});
    optimizer->step({.lr = at::full({}, 0.02, at::kDouble), .found_inf = report.found_inf, .divisor = report.divisor});
    scaler.update(report.found_inf);
    return report;
  }
};

/// Unit three is used by all ranks, by one or by none, in turn.
bool uses_third(int64_t step, int64_t rank) { return step % 3 == 0 || (step % 3 == 1 && rank == 1); }

// With clipping and loss scaling; one step is skipped because a single rank has a gradient that is not finite.
const RankBody shares_out("shares_out", [] {
  comm::ProcessGroups groups = join();
  const int64_t rank = groups.rank(), world = groups.world_size(), parts = given("PARTS");
  // The reference has the same padding, so that its elements are in the same places.
  Learner learner(kept_gradients(), world), reference(device::Kept::whole, world);
  const auto owners = equal_shards(learner.model.arena, groups.world_size());
  learner.model.arena.own(owners[static_cast<size_t>(rank)]);
  learner.begin();
  reference.begin();
  DataParallel parallel(groups, learner.model.arena, learner.model.parameters,
                        {.buckets = kUnitBuckets, .owners = owners});
  const auto first_row = [world](int64_t r) { return r == 0 ? 0 : r == world ? kAllRows : kAllRows * r / world + 1; };
  for (int64_t step = 0; step < 20; ++step) {
    learner.model.clear_gradients();
    reference.model.clear_gradients();
    const int64_t begin = first_row(rank), count = first_row(rank + 1) - begin;
    for (int64_t part = 0; part < parts; ++part) {
      parallel.prepare(part + 1 == parts);
      const auto data = rows(step, begin + count * part / parts, begin + count * (part + 1) / parts);
      if (part != 1 || step % 5 != 0) learner.backward(data, uses_third(step, rank));  // else nothing to compute
      parallel.finish();
    }
    learner.model.arena.check_views();
    for (int64_t r = 0; r < world; ++r) {
      const int64_t from = first_row(r), rest = first_row(r + 1) - from;
      for (int64_t part = 0; part < parts; ++part) {
        const auto data = rows(step, from + rest * part / parts, from + rest * (part + 1) / parts);
        if (part != 1 || step % 5 != 0) reference.backward(data, uses_third(step, r));
      }
    }
    if (step == kOverflowingStep) {
      if (rank + 1 == world)
        learner.model.arena.gradients_of_pieces().back()[-1].fill_(std::numeric_limits<double>::infinity());
      reference.model.arena.gradients()[-1].fill_(std::numeric_limits<double>::infinity());
    }
    const at::Tensor expected = owned_of(learner.model.arena, reference.model.arena.gradients());
    const at::Tensor got = at::cat(learner.model.arena.gradients_of_pieces());
    const at::Tensor before = (step == kOverflowingStep ? learner.model.arena.values() : expected).clone();
    if (step != kOverflowingStep && !(distance(got, expected) < 1e-9))
      return fail("gradients differ", distance(got, expected));
    const auto report = learner.update([&](const at::Tensor& tensor) { parallel.all_reduce_squares(tensor); });
    parallel.all_gather_values();
    const auto wanted = reference.update({});
    const bool is_skipped = report.found_inf.item<float>() == 1;
    if (is_skipped != (step == kOverflowingStep)) return fail("skipped", static_cast<double>(step));
    if (is_skipped && distance(learner.model.arena.values(), before) != 0)
      return fail("a skipped step changed values", 0);
    if (!is_skipped && !(distance(report.norm, wanted.norm) < 1e-9))
      return fail("norms differ", distance(report.norm, wanted.norm));
    const double difference = distance(learner.model.arena.values(), reference.model.arena.values());
    if (!(difference < 1e-9)) return fail("values differ", difference);
    if (learner.scaler.state().scale != reference.scaler.state().scale)
      return fail("scales differ", static_cast<double>(step));
  }
  return 0;
});

class ShardedStage : public ::testing::TestWithParam<int> {
 protected:
  std::map<std::string, std::string> stage(int parts = 1) const {
    return {{"STAGE", std::to_string(GetParam())}, {"PARTS", std::to_string(parts)}};
  }
};
INSTANTIATE_TEST_SUITE_P(Stages, ShardedStage, ::testing::Values(1, 2),
                         [](const auto& entry) { return entry.param == 1 ? "OfTheOptimizer" : "OfTheGradients"; });

TEST_P(ShardedStage, TrainsLikeOneRank) {
  for (const int world : {2, 4}) expect_success("shares_out", world, stage());
}

TEST_P(ShardedStage, TrainsLikeOneRankWithAccumulation) { expect_success("shares_out", 3, stage(3)); }

const RankBody shared_overlap("shared_overlap", [] {
  comm::ProcessGroups groups = join();
  SmallModel model(device::Kept::owned, 2);
  const auto owners = equal_shards(model.arena, 2);
  model.arena.own(owners[static_cast<size_t>(groups.rank())]);
  DataParallel parallel(groups, model.arena, model.parameters, {.buckets = kUnitBuckets, .owners = owners});
  const auto data = rows(0, 0, 5);
  for (const bool is_last : {false, true}) {  // of the micro-batches of a step
    parallel.prepare(is_last);
    model.loss_sum(data.inputs, data.targets).backward();
    if (parallel.started() != 4) return fail("started within backward", static_cast<double>(parallel.started()));
    parallel.finish();
  }
  // A step that all ranks give up must leave nothing behind.
  const at::Tensor twice = model.arena.owned_gradients().clone();
  model.clear_gradients();
  parallel.prepare(true);
  model.loss_sum(data.inputs, data.targets, false).backward();
  model.clear_gradients();
  for (const bool is_last : {false, true}) {
    parallel.prepare(is_last);
    model.loss_sum(data.inputs, data.targets).backward();
    parallel.finish();
  }
  const double difference = distance(twice, model.arena.owned_gradients());
  if (!(difference < 1e-12)) return fail("after a step that was given up", difference);
  groups.control().barrier("end");
  return 0;
});

TEST(ShardedGradients, StartBucketsWithinEveryBackward) { expect_success("shared_overlap", 2); }

/// 24 layers of 1 MiB, one unit each.
struct DeepModel {
  static constexpr int64_t kLayers = 24, kWidth = 512, kLayerBytes = kWidth * kWidth * 4;

  std::vector<at::Tensor> weights;
  std::unique_ptr<device::Arena> arena;

  explicit DeepModel(int64_t shards) {
    std::vector<device::ArenaTensor> arena_tensors;
    for (int64_t i = 0; i < kLayers; ++i) {
      weights.push_back(at::empty({kWidth, kWidth}).requires_grad_(true));
      arena_tensors.push_back({"layer" + std::to_string(i), weights.back(), i, true});
    }
    arena = std::make_unique<device::Arena>(
        arena_tensors, device::ArenaOptions{.gradients = device::Kept::owned,
                                            .shards = shards,
                                            .parts = {.bytes = kLayerBytes, .first_bytes = kLayerBytes}});
    at::Tensor(arena->values()).fill_(1e-3);
  }

  at::Tensor loss() const {
    at::Tensor x = at::ones({2, kWidth});
    for (const at::Tensor& weight : weights) x = at::linear(x, weight);
    return x.sum();
  }
};

// Peak memory of autograd, buckets and Gloo together while all gradients are computed and reduced.
const RankBody takes_memory("takes_memory", [] {
  comm::ProcessGroups groups = join();
  DeepModel model(groups.world_size());
  device::install_host_allocator();  // starts counting here
  const auto owners = equal_shards(*model.arena, groups.world_size());
  model.arena->own(owners[static_cast<size_t>(groups.rank())]);
  DataParallel parallel(
      groups, *model.arena, model.weights,
      {.buckets = {.bytes = DeepModel::kLayerBytes, .first_bytes = DeepModel::kLayerBytes}, .owners = owners});
  for (int step = 0; step < 3; ++step) {
    parallel.prepare(true);
    model.loss().backward();
    parallel.finish();
  }
  // Gloo's thread releases a tensor a moment after it has reported completion.
  const auto end = std::chrono::steady_clock::now() + gputrain::testing::patience(std::chrono::seconds(20));
  while (device::host_allocator_facts().in_use_bytes != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  const int64_t left = device::host_allocator_facts().in_use_bytes;
  const int64_t most = device::host_allocator_facts().peak_in_use_bytes;
  if (left != 0) return fail("bytes left behind", static_cast<double>(left));
  // Two buckets in flight and what is received of them, one being filled, one gradient on its way to it, in autograd's
  // layout and in ours, and one that Gloo's thread is about to release.
  if (most > 8 * DeepModel::kLayerBytes) return fail("MiB at the peak", static_cast<double>(most) / (1 << 20));
  const auto kept = static_cast<int64_t>(model.arena->owned_gradients().nbytes());
  const int64_t all = DeepModel::kLayers * DeepModel::kLayerBytes;
  return kept <= all / groups.world_size() + DeepModel::kLayerBytes ? 0 : fail("bytes kept", static_cast<double>(kept));
});

TEST(ShardedGradients, TakePartOfMemoryAndFewBuckets) { expect_success("takes_memory", 4); }

}  // namespace
}  // namespace gputrain::parallel

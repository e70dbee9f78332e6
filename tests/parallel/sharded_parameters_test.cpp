// Sharded parameters: which units have memory when, what is sent, and gradients against whole weights.
#include "gputrain/parallel/sharded_parameters.hpp"

#include <chrono>
#include <optional>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "comm/rank_processes.hpp"
#include "gputrain/comm/simulated_ranks.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "parallel/small_model.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::distance;
using gputrain::testing::expect_success;
using gputrain::testing::fail;
using gputrain::testing::join;
using gputrain::testing::RankBody;

constexpr int64_t kLayers = 12, kWidth = 512, kLayerBytes = kWidth * kWidth * 4;

/// Which parameters are trained: the matrices, or biases of layers from this one on beside frozen matrices.
struct Trained {
  std::optional<int64_t> biases_from = {};
};

/// Layers of 1 MiB, one unit each.
class Deep final : public models::Model {
 public:
  Deep(int64_t width, at::ScalarType type, bool takes_no_memory, Trained trained)
      : Model({.policy = {.master = type, .compute = type}, .takes_no_memory = takes_no_memory}) {
    const bool has_biases = trained.biases_from.has_value();
    for (int64_t i = 0; i < kLayers; ++i) {
      layers_.push_back(add_child<nn::Linear>("layer" + std::to_string(i), context(),
                                              nn::Linear::Options{.in = width, .out = width, .bias = has_biases}));
      if (!has_biases) continue;
      layers_.back()->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
        if (name == "weight" || i < *trained.biases_from) parameter.freeze();
      });
    }
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor x = inputs;
    for (const nn::Linear* layer : layers_) {
      const nn::UnitRange range(*layer);
      x = layer->bias().defined() ? with_late_readers(*layer, x) : layer->forward(x);
    }
    return x;
  }
  std::vector<models::Unit> units() override {
    std::vector<models::Unit> units;
    for (nn::Linear* layer : layers_) units.push_back({"layer", {layer}});
    return units;
  }

 private:
  /// Three operators read the matrix, and the last of them in a backward pass does so after the bias has its gradient,
  /// as beside a branch of an adapter.
  static at::Tensor with_late_readers(const nn::Linear& layer, const at::Tensor& x) {
    const at::Tensor y = at::add(at::linear(x, layer.weight()), layer.bias());
    return at::linear(at::linear(y, layer.weight()), layer.weight());
  }

  std::vector<nn::Linear*> layers_;
};

/// A model in an arena whose values `ranks` share out.
struct Sharded {
  Deep model;
  std::vector<at::Tensor> weights;  // trained ones
  std::vector<at::Tensor> matrices;
  std::unique_ptr<device::Arena> arena;
  std::vector<device::Shard> owners;
  std::unique_ptr<ShardedParameters> parameters;

  explicit Sharded(comm::ProcessGroups& groups, int64_t width = kWidth, at::ScalarType type = at::kFloat,
                   Trained trained = {})
      : model(width, type, !groups.alone(), trained) {
    std::vector<device::ArenaTensor> tensors;
    model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      if (parameter.trainable) weights.push_back(parameter.value);
      if (parameter.value.dim() == 2) matrices.push_back(parameter.value);
      tensors.push_back(
          {.name = name, .value = parameter.value, .unit = std::ssize(matrices) - 1, .trainable = parameter.trainable});
    });
    const bool is_alone = groups.alone();
    arena = std::make_unique<device::Arena>(
        tensors, device::ArenaOptions{.gradients = is_alone ? device::Kept::whole : device::Kept::owned,
                                      .values = is_alone ? device::Kept::whole : device::Kept::owned,
                                      .shards = groups.world_size()});
    if (is_alone) {
      nn::initialize(model, 3);
      return;
    }
    owners = equal_shards(*arena, groups.world_size());
    arena->own(owners[static_cast<size_t>(groups.rank())]);
    parameters = std::make_unique<ShardedParameters>(groups, *arena, model);
    parameters->fill([&] { nn::initialize(model, 3); });
  }

  int64_t units_with_memory() const {
    int64_t count = 0;
    for (const at::Tensor& matrix : matrices) count += device::has_memory(matrix);
    return count;
  }
};

// Nothing but two units has memory in a forward pass, and nothing afterwards.
const RankBody takes_two_units("takes_two_units", [] {
  comm::ProcessGroups groups = join();
  device::install_host_allocator();  // starts counting here
  Sharded sharded(groups);
  if (sharded.arena->owned_values().numel() * groups.world_size() != sharded.arena->numel()) return fail("shard", 0);
  if (sharded.units_with_memory() != 0) return fail("units with memory", 1);
  const int64_t before = device::host_allocator_facts().peak_in_use_bytes;
  if (before > kLayerBytes + (1 << 16)) return fail("MiB while it is filled", static_cast<double>(before) / (1 << 20));
  {
    const at::NoGradGuard no_grad;
    sharded.model.forward(at::ones({2, kWidth}));
  }
  const int64_t most = device::host_allocator_facts().peak_in_use_bytes;
  if (most > 2 * kLayerBytes + (1 << 16)) return fail("MiB forward", static_cast<double>(most) / (1 << 20));
  DataParallel parallel(groups, *sharded.arena, sharded.weights,
                        {.owners = sharded.owners, .parameters = sharded.parameters.get()});
  for (int step = 0; step < 2; ++step) {
    parallel.prepare(true);
    sharded.model.forward(at::ones({2, kWidth})).sum().backward();
    parallel.finish();
    if (sharded.units_with_memory() > 1) return fail("units after backward", 2);
    parallel.all_gather_values();
  }
  // Besides two units: gradients as in ShardedGradients.
  const int64_t peak = device::host_allocator_facts().peak_in_use_bytes;
  if (peak > 10 * kLayerBytes) return fail("MiB in a step", static_cast<double>(peak) / (1 << 20));
  if (sharded.units_with_memory() != 0) return fail("units after the update", 1);
  groups.control().barrier("end");
  return 0;
});

TEST(ShardedParameters, TakeTheMemoryOfTwoUnits) { expect_success("takes_two_units", 4); }

// Of frozen matrices a rank has its share, and two in a forward and in a backward pass.
const RankBody takes_two_frozen_units("takes_two_frozen_units", [] {
  comm::ProcessGroups groups = join();
  device::install_host_allocator();  // starts counting here
  Sharded sharded(groups, kWidth, at::kFloat, {.biases_from = 0});
  const auto& frozen = sharded.arena->frozen_values();
  if (frozen.size() != 1 ||
      std::ssize(frozen) * static_cast<int64_t>(frozen[0].nbytes()) * groups.world_size() != kLayers * kLayerBytes)
    return fail("share of the frozen bytes", frozen.empty() ? 0 : static_cast<double>(frozen[0].nbytes()));
  constexpr int64_t kRest = 1 << 17;  // biases and activations
  const int64_t before = device::host_allocator_facts().peak_in_use_bytes;
  if (before > kLayerBytes + kRest) return fail("MiB while it is filled", static_cast<double>(before) / (1 << 20));
  DataParallel parallel(groups, *sharded.arena, sharded.weights,
                        {.owners = sharded.owners, .parameters = sharded.parameters.get()});
  for (int step = 0; step < 2; ++step) {
    parallel.prepare(true);
    sharded.model.forward(at::ones({2, kWidth})).sum().backward();
    if (parallel.started() != kLayers) return fail("started within backward", static_cast<double>(parallel.started()));
    parallel.finish();
    parallel.all_gather_values();
    if (sharded.units_with_memory() != 0) return fail("units after the update", 1);
  }
  const int64_t peak = device::host_allocator_facts().peak_in_use_bytes;
  if (peak > 2 * kLayerBytes + kRest) return fail("MiB in a step", static_cast<double>(peak) / (1 << 20));
  groups.control().barrier("end");
  return 0;
});

TEST(ShardedParameters, TakeTheMemoryOfTwoFrozenUnits) { expect_success("takes_two_frozen_units", 4); }

/// Compares the gradients of what is trained with those of a model that one rank has whole. `has_reference`: another
/// shared-out model computes between the forward and the backward pass.
int compare_gradients(Trained trained, bool has_reference = false) {
  comm::ProcessGroups groups = join(), none;
  constexpr int64_t kNarrow = 24;
  Sharded whole(none, kNarrow, at::kDouble, trained), sharded(groups, kNarrow, at::kDouble, trained);
  DataParallel parallel(groups, *sharded.arena, sharded.weights,
                        {.owners = sharded.owners, .parameters = sharded.parameters.get()});
  const auto rows = [&](int rank) {
    return at::full({2, kNarrow}, 0.1 * (rank + 1), at::kDouble) + at::ones({2, 1}, at::kDouble);
  };
  for (int rank = 0; rank < groups.world_size(); ++rank) {
    whole.model.forward(rows(rank)).square().sum().backward();
  }
  std::optional<Sharded> reference;
  if (has_reference) reference.emplace(groups, kNarrow, at::kDouble, trained);
  parallel.prepare(true);
  const at::Tensor given = sharded.model.forward(rows(groups.rank()));
  if (reference) {
    const at::NoGradGuard no_grad;
    const double difference = distance(reference->model.forward(rows(groups.rank())), given);
    if (difference != 0) return fail("the reference gives something else", difference);
  }
  given.square().sum().backward();
  if (parallel.started() != parallel.buckets())
    return fail("started within backward", static_cast<double>(parallel.started()));
  parallel.finish();
  int64_t compared = 0;
  for (const auto& segment : whole.arena->segments()) {
    const auto ours = std::ranges::find(sharded.arena->segments(), segment.name, &device::Segment::name);
    const at::Tensor expected = whole.arena->gradients().narrow(0, segment.offset, segment.numel);
    for (const auto& [range, at] : sharded.arena->owned()) {
      const int64_t begin = std::max(range.begin, ours->offset), end = std::min(range.end, ours->offset + ours->numel);
      if (begin >= end) continue;
      const at::Tensor got = sharded.arena->owned_gradients().narrow(0, at + begin - range.begin, end - begin);
      const double difference = distance(got, expected.narrow(0, begin - ours->offset, end - begin));
      if (!(difference < 1e-9)) return fail("gradients differ", difference);
      compared += end - begin;
    }
  }
  const at::Tensor all = at::full({}, compared, at::kLong);
  groups.control().all_reduce_sum(all, "compared").wait();
  int64_t elements = 0;
  for (const at::Tensor& weight : sharded.weights) elements += weight.numel();
  if (all.item<int64_t>() != elements) return fail("compared", all.item<double>());
  groups.control().barrier("end");
  return 0;
}

const RankBody has_equal_gradients("has_equal_gradients", [] { return compare_gradients({}); });
const RankBody has_equal_gradients_beside_frozen("has_equal_gradients_beside_frozen",
                                                 [] { return compare_gradients({.biases_from = 3}); });
const RankBody has_equal_gradients_beside_reference("has_equal_gradients_beside_reference",
                                                    [] { return compare_gradients({}, /*has_reference=*/true); });

TEST(ShardedParameters, HaveTheGradientsOfWholeOnes) {
  for (const int world : {2, 3}) {
    expect_success("has_equal_gradients", world);
    expect_success("has_equal_gradients_beside_frozen", world);
    expect_success("has_equal_gradients_beside_reference", world);
  }
}

// A unit is gathered for the forward and for the backward pass; the last one stays for both.
TEST(ShardedParameters, AreGatheredTwice) {
  const auto traffic = std::make_shared<comm::CollectiveTraffic>();
  comm::ProcessGroups groups = comm::ProcessGroups::simulated({.rank = 1, .world_size = 64}, traffic);
  Sharded sharded(groups);
  DataParallel parallel(groups, *sharded.arena, sharded.weights,
                        {.owners = sharded.owners, .parameters = sharded.parameters.get()});
  parallel.prepare(true);
  sharded.model.forward(at::ones({2, kWidth})).sum().backward();
  parallel.finish();
  EXPECT_EQ(traffic->all_gather.calls, 2 * kLayers - 1);
  EXPECT_EQ(traffic->reduce_scatter.calls, kLayers);
  EXPECT_EQ(traffic->reduce_scatter.bytes, kLayers * kLayerBytes);
}

// The matrices of a unit stay after the gradient of its bias; units before which nothing is trained are not read again.
TEST(ShardedParameters, AreGatheredTwiceBesideFrozenOnes) {
  const auto traffic = std::make_shared<comm::CollectiveTraffic>();
  comm::ProcessGroups groups = comm::ProcessGroups::simulated({.rank = 1, .world_size = 64}, traffic);
  constexpr int64_t kFirst = 4;
  Sharded sharded(groups, kWidth, at::kFloat, {.biases_from = kFirst});
  const ReducerOptions options{.owners = sharded.owners, .parameters = sharded.parameters.get()};
  DataParallel parallel(groups, *sharded.arena, sharded.weights, options);
  parallel.prepare(true);
  sharded.model.forward(at::ones({2, kWidth})).sum().backward();
  parallel.finish();
  EXPECT_EQ(traffic->all_gather.calls, kFirst + 2 * (2 * (kLayers - kFirst) - 1));  // matrix and bias apart
  EXPECT_EQ(traffic->reduce_scatter.calls, kLayers - kFirst);
  const auto sent = traffic_of_step(*sharded.arena, options, groups.mesh(), 1);
  EXPECT_EQ(sent.bytes, 63 * traffic->all_gather.bytes + traffic->reduce_scatter.bytes * 63 / 64);
}

// The last unit borrows the weight of the first one, as a tied head does, and computes in parts.
TEST(ShardedParameters, AreNotGatheredAgainForFurtherPartsOfAHead) {
  const auto gathers = [](int parts) {
    const auto traffic = std::make_shared<comm::CollectiveTraffic>();
    comm::ProcessGroups groups = comm::ProcessGroups::simulated({.rank = 0, .world_size = 2}, traffic);
    Sharded sharded(groups, 32);
    const auto units = sharded.model.units();
    const nn::Module &first = *units.front().modules[0], &last = *units.back().modules[0];
    const at::Tensor x = sharded.model.forward(at::ones({2, 32}));
    for (int part = 0; part < parts; ++part) {
      const nn::UnitRange range(last);
      nn::borrow_weights(first);
      const at::Tensor leaf = x.detach().set_requires_grad(true);
      const at::Tensor y = at::linear(at::linear(leaf, sharded.weights.back()), sharded.weights.front());
      torch::autograd::grad({y.sum()}, {leaf, sharded.weights.front()});
    }
    x.sum().backward();
    return traffic->all_gather.calls;
  };
  EXPECT_EQ(gathers(1), 2 * kLayers);  // one more: the first unit for the head
  EXPECT_EQ(gathers(4), gathers(1));
}

}  // namespace
}  // namespace gputrain::parallel

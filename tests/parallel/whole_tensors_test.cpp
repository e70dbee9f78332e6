// A rule that needs whole matrices gets them whole where ranks share out the state: against one rank that has all.
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "optim/optim_fixture.hpp"
#include "parallel/small_model.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::distance;
using gputrain::testing::expect_success;
using gputrain::testing::fail;
using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::rows;
using gputrain::testing::SmallModel;

struct NormedSpec {
  static void describe(config::Description<NormedSpec>& d) { d.summary("for a test"); }
};

/// Steps of length 1 in each tensor, whatever the length of its gradient; matrices by two thirds of it. A part of a
/// tensor would have another length.
class Normed final : public optim::Optimizer {
 public:
  static optim::Abilities abilities() { return {.whole_tensors = true}; }

  Normed(const NormedSpec&, const device::Arena& arena) : tensors_(optim::owned_tensors(arena, 0)) {}

  void step(const optim::StepScalars& scalars) override {
    for (const optim::OwnedTensor& tensor : tensors_) {
      const bool is_matrix = tensor.segment.sizes.size() == 2 && tensor.segment.role == device::Role::weight;
      const at::Tensor rate = scalars.lr.mul(tensor.lr_factor * (is_matrix ? 2.0 / 3 : 1));
      tensor.value.sub_(tensor.gradient.div(tensor.gradient.norm()).mul(rate));
    }
  }
  State state() override { return {}; }
  std::string describe() const override { return "normed"; }

 private:
  std::vector<optim::OwnedTensor> tensors_;
};

const config::Registered<Normed, NormedSpec> registered_normed{optim::catalog(), "normed", "for a test"};

std::unique_ptr<optim::Optimizer> normed(const device::Arena& arena) {
  return optim::optimizer_of("type: normed", arena);
}

const RankBody gives_whole_tensors("gives_whole_tensors", [] {
  comm::ProcessGroups groups = join();
  SmallModel model(device::Kept::owned), reference;
  const auto owners = shards_of_tensors(model.arena, groups.world_size());
  model.arena.own(owners[static_cast<size_t>(groups.rank())]);
  const auto optimizer = normed(model.arena), alone = normed(reference.arena);
  DataParallel parallel(groups, model.arena, model.parameters, {.buckets = {.bytes = 600}, .owners = owners});
  for (int64_t step = 0; step < 10; ++step) {
    model.clear_gradients();
    reference.clear_gradients();
    parallel.prepare(true);
    const auto own = rows(step, 6 * groups.rank(), 6 * (groups.rank() + 1)),
               all = rows(step, 0, 6 * groups.world_size());
    model.loss_sum(own.inputs, own.targets).backward();
    parallel.finish();
    reference.loss_sum(all.inputs, all.targets).backward();
    const at::NoGradGuard no_grad;
    for (optim::Optimizer* one : {optimizer.get(), alone.get()}) one->step({.lr = at::full({}, 0.05, at::kDouble)});
    parallel.all_gather_values();
    const double difference = distance(model.arena.values(), reference.arena.values());
    if (!(difference < 1e-9)) return fail("values differ", difference);
  }
  groups.control().barrier("end");
  return 0;
});

TEST(WholeTensors, AreGivenToARuleThatAsksForThem) {
  const auto& rules = optim::catalog();
  EXPECT_TRUE(rules.abilities(rules.with_defaults("normed")).whole_tensors);
  EXPECT_FALSE(rules.abilities(rules.with_defaults("adamw")).whole_tensors);
  for (const int world : {2, 3}) expect_success("gives_whole_tensors", world);
}

TEST(WholeTensors, EndShardsBetweenThem) {
  std::vector<device::ArenaTensor> arena_tensors;
  for (const int64_t size : {100, 64, 32, 96, 32})
    arena_tensors.push_back({.name = "w" + std::to_string(arena_tensors.size()), .value = at::empty({size})});
  const device::Arena arena(arena_tensors);  // bounds at 128, 192, 224, 320, 352
  const auto shards = shards_of_tensors(arena, 3);
  EXPECT_EQ(shards[0].at(0).end, 128);
  EXPECT_EQ(shards[1].at(0).end, 224);
  EXPECT_EQ(shards[2].at(0).end, 352);
}

}  // namespace
}  // namespace gputrain::parallel

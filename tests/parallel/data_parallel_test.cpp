#include "gputrain/parallel/data_parallel.hpp"

#include <signal.h>
#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "comm/rank_processes.hpp"
#include "gputrain/core/error.hpp"
#include "parallel/small_model.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::distance;
using gputrain::testing::expect_success;
using gputrain::testing::fail;
using gputrain::testing::given;
using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::RankProcesses;
using gputrain::testing::rows;
using gputrain::testing::SmallModel;

constexpr device::JoinLimits kSmallBuckets{.bytes = 2600,
                                           .first_bytes = 600};  // one bucket per unit of the small model
constexpr int64_t kRows = 24;
constexpr double kTolerance = 1e-12;

// Each rank trains on an uneven share of the rows in `parts` micro-batches; the reference trains on all rows at once.
int trains_like_one_rank(int64_t parts, const std::function<bool(int64_t step, int rank)>& uses_third,
                         bool adds_to_place = false) {
  comm::ProcessGroups groups = join();
  const int64_t rank = groups.rank(), world = groups.world_size();
  SmallModel model, reference;
  model.adds_to_place = adds_to_place;
  DataParallel parallel(groups, model.arena, model.parameters, {.buckets = kSmallBuckets});
  const auto first_row = [world](int64_t r) { return r == 0 ? 0 : r == world ? kRows : kRows * r / world + 1; };
  for (int64_t step = 0; step < 20; ++step) {
    const int64_t begin = first_row(rank), count = first_row(rank + 1) - begin;
    for (int64_t part = 0; part < parts; ++part) {
      const auto data = rows(step, begin + count * part / parts, begin + count * (part + 1) / parts);
      parallel.prepare(part + 1 == parts);
      (model.loss_sum(data.inputs, data.targets, uses_third(step, groups.rank())) / kRows).backward();
    }
    parallel.finish();
    for (int64_t r = 0; r < world; ++r) {
      const auto data = rows(step, first_row(r), first_row(r + 1));
      (reference.loss_sum(data.inputs, data.targets, uses_third(step, static_cast<int>(r))) / kRows).backward();
    }
    const double difference = distance(model.arena.gradients(), reference.arena.gradients());
    if (!(difference < kTolerance)) return fail("gradients differ", difference);
    model.arena.check_views();
    for (SmallModel* one : {&model, &reference}) {
      one->descend(0.05);
      one->clear_gradients();
    }
  }
  return distance(model.arena.values(), reference.arena.values()) < kTolerance ? 0 : fail("values differ", 0);
}

const RankBody one_micro_batch("one_micro_batch",
                               [] { return trains_like_one_rank(1, [](int64_t, int) { return true; }); });
const RankBody three_micro_batches("three_micro_batches",
                                   [] { return trains_like_one_rank(3, [](int64_t, int) { return true; }); });
// Unit three is used by every rank, by one or by none, in turn.
const RankBody unused_parameters("unused_parameters", [] {
  return trains_like_one_rank(2, [](int64_t step, int rank) { return step % 3 == 0 || (step % 3 == 1 && rank == 1); });
});

const RankBody gradients_in_place("gradients_in_place", [] {
  return trains_like_one_rank(3, [](int64_t step, int) { return step % 2 == 0; }, /*adds_to_place=*/true);
});

TEST(DataParallel, TrainsLikeOneRankOnAllData) {
  for (const int world : {2, 4}) expect_success("one_micro_batch", world);
}

TEST(DataParallel, TrainsLikeOneRankWithAccumulation) { expect_success("three_micro_batches", 2); }

TEST(DataParallel, AddsUpUnusedParameters) { expect_success("unused_parameters", 2); }

TEST(DataParallel, AddsUpGradientsAutogradDoesNotSee) { expect_success("gradients_in_place", 2); }

const RankBody overlap("overlap", [] {
  comm::ProcessGroups groups = join();
  SmallModel model;
  model.adds_to_place = given("IN_PLACE") == 1;
  DataParallel parallel(groups, model.arena, model.parameters, {.buckets = kSmallBuckets});
  const auto data = rows(0, 0, 5);
  if (parallel.buckets() != 4) return fail("buckets", static_cast<double>(parallel.buckets()));
  parallel.prepare(false);
  model.loss_sum(data.inputs, data.targets).backward();
  if (parallel.started() != 0) return fail("started without synchronising", static_cast<double>(parallel.started()));
  parallel.prepare(true);
  model.loss_sum(data.inputs, data.targets).backward();
  if (parallel.started() != 4) return fail("started within backward", static_cast<double>(parallel.started()));
  parallel.finish();
  // Without the third unit, all later buckets in the fixed order wait for finish().
  parallel.prepare(true);
  model.loss_sum(data.inputs, data.targets, false).backward();
  if (parallel.started() != 1) return fail("started past a gap", static_cast<double>(parallel.started()));
  parallel.finish();
  groups.control().barrier("end");
  return 0;
});

TEST(DataParallel, StartsBucketsInBackwardInFixedOrder) {
  for (const char* in_place : {"0", "1"}) expect_success("overlap", 2, {{"IN_PLACE", in_place}});
}

const RankBody given_up_step("given_up_step", [] {
  comm::ProcessGroups groups = join();
  SmallModel model;
  DataParallel parallel(groups, model.arena, model.parameters, {.buckets = kSmallBuckets});
  const auto data = rows(0, 0, 5);
  parallel.prepare(true);
  model.loss_sum(data.inputs, data.targets, false).backward();  // one bucket is in flight when every rank gives up
  parallel.prepare(true);
  model.clear_gradients();
  model.loss_sum(data.inputs, data.targets).backward();
  parallel.finish();
  const at::Tensor summed = model.arena.gradients().clone();
  model.clear_gradients();
  parallel.prepare(false);
  model.loss_sum(data.inputs, data.targets).backward();
  const double difference = distance(summed, model.arena.gradients() * 2);
  return difference < kTolerance ? 0 : fail("after a given-up step", difference);
});

TEST(DataParallel, LeavesNothingOfAnAbandonedStep) { expect_success("given_up_step", 2); }

TEST(DataParallel, HooksNothingOnOneRank) {
  comm::ProcessGroups alone;
  SmallModel model;
  DataParallel parallel(alone, model.arena, model.parameters);
  for (const at::Tensor& parameter : model.parameters) {
    EXPECT_EQ(torch::autograd::impl::try_get_grad_accumulator(parameter), nullptr);
  }
  parallel.prepare(true);
  parallel.finish();
  EXPECT_EQ(parallel.buckets(), 0);
}

const RankBody dies_in_backward("dies_in_backward", []() -> int {
  comm::ProcessGroups groups = join();
  SmallModel model;
  DataParallel parallel(groups, model.arena, model.parameters, {.buckets = kSmallBuckets});
  groups.control().barrier("start");
  const auto data = rows(0, 0, 5);
  for (int step = 0;; ++step) {
    if (groups.rank() == 1 && step == 3) ::kill(::getpid(), SIGKILL);
    parallel.prepare(true);
    model.loss_sum(data.inputs, data.targets).backward();
    parallel.finish();
  }
});

TEST(DataParallel, NamesBucketWhenARankDies) {
  RankProcesses ranks("dies_in_backward", 2);
  const auto results = ranks.finish();
  EXPECT_EQ(results[1].signal, SIGKILL);
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::restart)) << results[0].output;
  EXPECT_THAT(results[0].output, ::testing::HasSubstr("all-reduce of gradient bucket"));
}

}  // namespace
}  // namespace gputrain::parallel

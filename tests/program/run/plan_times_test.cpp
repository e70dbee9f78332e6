// Formulas of `gputrain plan`: times of collectives, steps and pipelines, to the number.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gputrain/estimate/pipeline_time.hpp"
#include "gputrain/estimate/step_time.hpp"

namespace gputrain::testing_support {
namespace {

using app::Collective;
using app::Constant;
using app::Limit;

app::ClusterRates round_rates() {
  const auto constant = [](double value) { return Constant{.value = value, .origin = ""}; };
  return {.gpus = "",
          .ranks_per_host = 4,
          .compute = constant(1e12),
          .memory = constant(1e10),
          .inside = constant(1e9),
          .between = constant(1e8),
          .inside_latency = constant(1e-6),
          .between_latency = constant(1e-5),
          .start = constant(0)};
}

TEST(CollectiveTimes, AreThoseOfRings) {
  const auto rates = round_rates();
  const auto seconds = [&](Collective::Kind kind, int64_t ranks) {
    return app::collective_time({.kind = kind, .bytes = 4'000'000, .ranks = ranks}, rates);
  };
  using enum Collective::Kind;
  EXPECT_EQ(seconds(all_gather, 1).seconds, 0);
  EXPECT_NEAR(seconds(all_gather, 4).seconds, 3e-3 + 3e-6, 1e-9);  // 3/4 of 4 MB at 1 GB/s, three hops
  EXPECT_NEAR(seconds(all_reduce, 4).seconds, 6e-3 + 6e-6, 1e-9);
  EXPECT_EQ(seconds(all_reduce, 4).limit, Limit::inside_host);
  // Four adapters of a host together are slower than NVLink. Six hops inside the two hosts, one between them.
  EXPECT_NEAR(seconds(reduce_scatter, 8).seconds, 3.5e6 / 4e8 + 6e-6 + 1e-5, 1e-9);
  EXPECT_EQ(seconds(reduce_scatter, 8).limit, Limit::between_hosts);
  // A tree of 16 hosts is four hops deep.
  EXPECT_NEAR(seconds(all_reduce, 64).seconds, 2 * 63.0 / 64 * 4e6 / 4e8 + 2 * (3e-6 + 4e-5), 1e-9);
}

TEST(StepTimes, CountWhatTakesLonger) {
  const auto rates = round_rates();
  const Collective gather{.kind = Collective::Kind::all_gather, .bytes = 4'000'000, .ranks = 4};  // 3 ms
  app::StepWork work{.passes = 2, .forward_flops = 1e10, .backward_flops = 2e10, .update_bytes = 1e8};
  EXPECT_NEAR(app::step_time(work, rates).total(), 2 * 30e-3 + 10e-3, 1e-9);
  EXPECT_EQ(app::step_time(work, rates).limit(), Limit::compute);
  work.in_last_backward.assign(3, gather);  // two of them beside the backward pass
  EXPECT_NEAR(app::step_time(work, rates).total(), 2 * 30e-3 + 10e-3 + 3e-3, 1e-5);
  work.in_forward.assign(11, gather);  // 30 ms beside 10
  const auto time = app::step_time(work, rates);
  EXPECT_NEAR(time.total(), 2 * 33e-3 + 2 * 20e-3 + 10e-3 + 3e-3, 1e-3);
  EXPECT_NEAR(time.compute, 2 * 20e-3, 1e-9);
  EXPECT_EQ(time.limit(), Limit::inside_host);
  work.update_bytes = 1e10;
  EXPECT_EQ(app::step_time(work, rates).limit(), Limit::memory);
}

TEST(CollectiveTimes, OfTransfersAreOneHop) {
  const Collective near{.kind = Collective::Kind::transfer, .bytes = 4'000'000, .ranks = 2, .stride = 2};
  Collective far = near;
  far.stride = 4;  // on the next host, by one adapter
  EXPECT_NEAR(app::collective_time(near, round_rates()).seconds, 4e-3 + 1e-6, 1e-9);
  EXPECT_NEAR(app::collective_time(far, round_rates()).seconds, 4e-2 + 1e-5, 1e-9);
  EXPECT_EQ(app::collective_time(far, round_rates()).limit, Limit::between_hosts);
  EXPECT_EQ(app::sent_bytes(near), 4e6);
}

TEST(StepTimes, CountStallsBesidesComputing) {
  const Collective sum{.kind = Collective::Kind::all_reduce, .bytes = 4'000'000, .ranks = 4};  // 6 ms
  app::StepWork work{.passes = 2, .forward_flops = 1e10, .backward_flops = 2e10};
  work.in_forward_stalls = {{sum, 3}};
  work.in_backward_stalls = {{sum, 6}};
  const auto time = app::step_time(work, round_rates());
  EXPECT_NEAR(time.compute, 2 * 30e-3, 1e-9);
  EXPECT_NEAR(time.inside_host, 2 * 9 * 6e-3, 1e-3);
  EXPECT_NEAR(app::sent_bytes(work), 2 * 9 * 6e6, 1);
}

/// Forward passes of these milliseconds, one part a stage.
app::PipelineWork pipeline_of(const std::vector<double>& milliseconds, int64_t micro_batches) {
  app::PipelineWork work{.shape = {.stages = std::ssize(milliseconds), .parts = 1, .micro_batches = micro_batches},
                         .kinds = {},
                         .kind_of_parts = {},
                         .transfer = {.kind = Collective::Kind::transfer, .bytes = 0, .ranks = 1},
                         .of_ends = {}};
  for (const double one : milliseconds) {
    work.kind_of_parts.push_back(work.kinds.size());
    work.kinds.push_back({.passes = micro_batches, .forward_flops = one * 1e9, .backward_flops = 2 * one * 1e9});
  }
  return work;
}

TEST(PipelineTimes, AreThoseOfTimetables) {
  app::PipelineTimes times;
  const auto alike = times.step_time(pipeline_of({10, 10, 10, 10}, 8), round_rates());
  EXPECT_NEAR(alike.compute, 8 * 30e-3, 1e-9);
  EXPECT_NEAR(alike.waiting, 3 * 30e-3, 1e-9);
  for (const int64_t micro_batches : {4, 8, 9, 64}) {
    const std::vector<double> milliseconds{10, 7, 9, 16};
    const auto time = times.step_time(pipeline_of(milliseconds, micro_batches), round_rates());
    const auto timed = parallel::timed_passes({.stages = 4, .parts = 1, .micro_batches = micro_batches}, milliseconds);
    double end = 0;
    for (const auto& stage : timed) end = std::max(end, 1e-3 * stage.back().end);
    EXPECT_NEAR(time.total(), end, 2e-3 * end) << micro_batches;
    EXPECT_NEAR(time.waiting / time.total(), parallel::bubble_of(timed), 3e-3) << micro_batches;
  }
  EXPECT_EQ(times.step_time(pipeline_of({10, 10, 10, 10}, 1), round_rates()).limit(), Limit::waiting);
}

TEST(PipelineTimes, CountTransfersOfTheFirstAndLastMicroBatch) {
  app::PipelineTimes times;
  app::PipelineWork work = pipeline_of({10, 10}, 8);
  const double alone = times.step_time(work, round_rates()).total();
  work.transfer = {.kind = Collective::Kind::transfer, .bytes = 4'000'000, .ranks = 2, .stride = 1};  // 4 ms beside 10
  const auto hidden = times.step_time(work, round_rates());
  EXPECT_NEAR(hidden.total(), alone + 2 * 4e-3, 1e-5);
  EXPECT_NEAR(hidden.inside_host, 2 * 4e-3, 1e-5);
  EXPECT_NEAR(app::sent_bytes(work), 8 * 4e6, 1);  // of the first stage
  work.transfer.bytes = 100'000'000;               // 100 ms are longer than any pass
  EXPECT_EQ(times.step_time(work, round_rates()).limit(), Limit::inside_host);
}

}  // namespace
}  // namespace gputrain::testing_support

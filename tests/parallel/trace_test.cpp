// Gradients are sent while backward still computes, and weights gathered while other units compute, as LibTorch's
// profiler shows.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/randint.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "../../src/models/texts/gpt.hpp"
#include "comm/rank_processes.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "gputrain/parallel/sharded_parameters.hpp"
#include "parallel/small_model.hpp"
#include "support/batches.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::expect_success;
using gputrain::testing::fail;
using gputrain::testing::join;
using gputrain::testing::RankBody;

constexpr int64_t kVocabulary = 64, kTime = 64, kSequences = 8, kLayers = 6;

/// A GPT in its arena, with at least one bucket per block. With `shards`, ranks share out its weights.
struct TracedGpt {
  std::unique_ptr<models::Model> model;
  std::vector<at::Tensor> parameters;
  std::unique_ptr<device::Arena> arena;

  explicit TracedGpt(int64_t shards = 1) : model(make(/*takes_no_memory=*/shards > 1)) {
    std::vector<device::ArenaTensor> arena_tensors;
    const auto units = model->units();
    for (size_t unit = 0; unit < units.size(); ++unit) {
      for (nn::Module* module : units[unit].modules) {
        module->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
          arena_tensors.push_back({units[unit].name + "." + std::to_string(arena_tensors.size()) + name,
                                   parameter.value, static_cast<int64_t>(unit), false});
          parameters.push_back(parameter.value);
        });
      }
    }
    const device::Kept kept = shards > 1 ? device::Kept::owned : device::Kept::whole;
    arena = std::make_unique<device::Arena>(arena_tensors,
                                            device::ArenaOptions{.gradients = kept, .values = kept, .shards = shards});
    nn::initialize(*model, 7);
  }

  static std::unique_ptr<models::Model> make(bool takes_no_memory) {
    auto spec = std::make_shared<models::GptSpec>();
    spec->n_layer = kLayers, spec->n_head = 4, spec->n_embd = 128, spec->tie_embeddings = false;
    const models::DataFacts facts{.input_shape = {kTime}, .num_classes = kVocabulary};
    return models::catalog().make({"gpt", spec}, nn::Context{.takes_no_memory = takes_no_memory}, facts);
  }

  at::Tensor loss() const {
    const auto ids = at::TensorOptions().dtype(at::kLong);
    const at::Tensor tokens = at::randint(kVocabulary, {kSequences, kTime}, ids);
    const at::Tensor targets = at::randint(kVocabulary, {kSequences, kTime}, ids);
    return testing_support::loss_of(*model, testing_support::batch_of(tokens, targets)).weighted;
  }
};

/// Begin and end of a trace event, in nanoseconds.
struct Span {
  uint64_t begin = 0, end = 0;
};

/// All events whose names start with `name`, ordered by begin.
std::vector<Span> spans_of(torch::autograd::profiler::ProfilerResult& trace, const std::string& name) {
  std::vector<Span> spans;
  for (const auto& event : trace.events()) {
    if (event.name().starts_with(name)) spans.push_back({event.startNs(), event.endNs()});
  }
  std::ranges::sort(spans, {}, &Span::begin);
  return spans;
}

template <class Step>
std::unique_ptr<torch::autograd::profiler::ProfilerResult> traced(Step step) {
  namespace profiler = torch::autograd::profiler;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<torch::profiler::impl::ActivityType> activities{torch::profiler::impl::ActivityType::CPU};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  step();
  return profiler::disableProfiler();
}

const RankBody overlap_in_a_trace("overlap_in_a_trace", [] {
  comm::ProcessGroups groups = join();
  const TracedGpt gpt;
  DataParallel parallel(groups, *gpt.arena, gpt.parameters, {.buckets = {.bytes = 900'000, .first_bytes = 10'000}});
  if (parallel.buckets() < kLayers) return fail("buckets", static_cast<double>(parallel.buckets()));
  constexpr int kSteps = 5;
  int done_meanwhile = 0;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor loss = gpt.loss();
    groups.control().barrier("step");
    const auto trace = traced([&] {
      parallel.prepare(true);
      loss.backward();
      parallel.finish();
    });
    const auto computing = spans_of(*trace, "autograd::engine::evaluate_function");
    const auto sending = spans_of(*trace, "gloo:all_reduce");
    if (std::ssize(sending) != parallel.buckets())
      return fail("all-reduces in the trace", static_cast<double>(sending.size()));
    const uint64_t begin = computing.front().begin, end = std::ranges::max(computing, {}, &Span::end).end;
    const Span& first = sending.front();
    // Most of backward, the blocks, is still to come by then, so more than half is left reliably.
    const double left =
        (static_cast<double>(end) - static_cast<double>(first.begin)) / static_cast<double>(end - begin);
    if (!(left > 0.5)) return fail("of backward was left when the first bucket was sent", left);
    if (first.end > first.begin && first.end < end) ++done_meanwhile;
  }
  groups.control().barrier("end");
  return done_meanwhile > 0 ? 0 : fail("steps whose first bucket arrived within backward", done_meanwhile);
});

/// How many of `sending` lie within `computing` by half or more.
int64_t count_within(const std::vector<Span>& sending, const std::vector<Span>& computing) {
  return std::ranges::count_if(sending, [&](const Span& one) {
    uint64_t within = 0, counted = one.begin;  // up to here
    for (const Span& other : computing) {
      const uint64_t begin = std::max(counted, other.begin), end = std::min(one.end, other.end);
      if (begin >= end) continue;
      within += end - begin;
      counted = end;
    }
    return 2 * within >= one.end - one.begin;
  });
}

/// Marks the forward passes of units, after each has its weights.
struct UnitsInTrace final : nn::UnitListener {
  void enter(const nn::Module&) override {
    range.emplace(at::RecordScope::USER_SCOPE);
    range->before("unit");
  }
  void leave() override { range.reset(); }
  std::optional<at::RecordFunction> range;
};

// Without overlap the main thread waits while it sends.
const RankBody overlap_of_shards("overlap_of_shards", [] {
  comm::ProcessGroups groups = join();
  TracedGpt gpt(groups.world_size());
  const auto owners = equal_shards(*gpt.arena, groups.world_size());
  gpt.arena->own(owners[static_cast<size_t>(groups.rank())]);
  ShardedParameters sharded(groups, *gpt.arena, *gpt.model);
  sharded.fill([&] { nn::initialize(*gpt.model, 7); });
  DataParallel parallel(groups, *gpt.arena, gpt.parameters, {.owners = owners, .parameters = &sharded});
  int64_t gathered = 0, reduced = 0;  // the best of some steps: other processes may take the cores
  for (int step = 0; step < 5; ++step) {
    gpt.arena->clear_gradients();
    parallel.prepare(true);
    groups.control().barrier("step");
    at::Tensor loss;
    UnitsInTrace units;
    nn::unit_listener() = &units;
    const auto forward = traced([&] { loss = gpt.loss(); });
    nn::unit_listener() = nullptr;
    const auto backward = traced([&] {
      loss.backward();
      parallel.finish();
    });
    parallel.all_gather_values();
    const auto gathering = spans_of(*forward, "gloo:broadcast");
    if (std::ssize(gathering) < kLayers) return fail("gathers in the trace", static_cast<double>(gathering.size()));
    gathered = std::max(gathered, count_within(gathering, spans_of(*forward, "unit")));
    const auto reducing = spans_of(*backward, "gloo:all_to_all");
    if (std::ssize(reducing) < kLayers) return fail("reductions in the trace", static_cast<double>(reducing.size()));
    reduced = std::max(reduced, count_within(reducing, spans_of(*backward, "autograd::engine::evaluate_function")));
  }
  groups.control().barrier("end");
  // Most of them, if no other process takes the cores.
  if (gathered < kLayers / 2) return fail("broadcasts lie within computing", static_cast<double>(gathered));
  return reduced >= kLayers / 3 ? 0 : fail("reductions lie within computing", static_cast<double>(reduced));
});

TEST(ShardedParameters, GathersAndReducesWhileOtherUnitsComputeInTrace) { expect_success("overlap_of_shards", 2); }

TEST(DataParallel, OverlapsFirstBucketWithBackwardInTrace) { expect_success("overlap_in_a_trace", 2); }

}  // namespace
}  // namespace gputrain::parallel

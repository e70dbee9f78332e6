// Gradients are sent while backward still computes, as LibTorch's profiler shows.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/randint.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "../../src/models/gpt.hpp"
#include "comm/rank_processes.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "parallel/small_model.hpp"
#include "support/batches.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::expect_success;
using gputrain::testing::fail;
using gputrain::testing::join;
using gputrain::testing::RankBody;

constexpr int64_t kVocabulary = 64, kTime = 64, kSequences = 8, kLayers = 6;

/// A GPT in its arena, with at least one bucket per block.
struct TracedGpt {
  std::unique_ptr<models::Model> model = make();
  std::vector<at::Tensor> parameters;
  std::unique_ptr<device::Arena> arena;

  TracedGpt() {
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
    arena = std::make_unique<device::Arena>(arena_tensors);
    nn::initialize(*model, 7);
  }

  static std::unique_ptr<models::Model> make() {
    auto spec = std::make_shared<models::GptSpec>();
    spec->n_layer = kLayers, spec->n_head = 4, spec->n_embd = 128;
    const models::DataFacts facts{.input_shape = {kTime}, .num_classes = kVocabulary};
    return models::catalog().make({"gpt", spec}, nn::Context{}, facts);
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

TEST(DataParallel, OverlapsFirstBucketWithBackwardInTrace) { expect_success("overlap_in_a_trace", 2); }

}  // namespace
}  // namespace gputrain::parallel

#include "gputrain/parallel/timetable.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "gputrain/core/error.hpp"

namespace gputrain::parallel {
namespace {

/// Returns the nth forward or backward pass of a stage: as many micro-batches as there are stages go through each of
/// its parts in turn.
Pass nth(const PipelineShape& shape, int64_t n, bool is_forward) {
  const int64_t turn = n / shape.stages, part = turn % shape.parts;
  return {.is_forward = is_forward,
          .micro_batch = turn / shape.parts * shape.stages + n % shape.stages,
          .part = is_forward ? part : shape.parts - 1 - part};
}

/// Returns forward passes before the first backward pass, and before forward and backward passes take turns.
int64_t warm_up_of(const PipelineShape& shape, int64_t stage) {
  const int64_t after = shape.stages - 1 - stage;
  const int64_t passes = shape.parts == 1 ? after : 2 * after + (shape.parts - 1) * shape.stages;
  return std::min(passes, shape.micro_batches * shape.parts);
}

}  // namespace

std::vector<Pass> passes_of(const PipelineShape& shape, int64_t stage) {
  GPUTRAIN_ASSERT(shape.parts == 1 || shape.micro_batches % shape.stages == 0, "whole turns of micro-batches");
  const int64_t all = shape.micro_batches * shape.parts, warm_up = warm_up_of(shape, stage);
  std::vector<Pass> passes;
  for (int64_t n = 0; n < warm_up; ++n) passes.push_back(nth(shape, n, /*is_forward=*/true));
  for (int64_t n = 0; n < all; ++n) {
    if (warm_up + n < all) passes.push_back(nth(shape, warm_up + n, /*is_forward=*/true));
    passes.push_back(nth(shape, n, /*is_forward=*/false));
  }
  return passes;
}

int64_t most_in_flight(const PipelineShape& shape, int64_t stage) {
  return std::min(warm_up_of(shape, stage) + 1, shape.micro_batches * shape.parts);
}

std::vector<std::vector<TimedPass>> timed_passes(const PipelineShape& shape, const PassTimes& times) {
  const auto stages = static_cast<size_t>(shape.stages);
  const int64_t parts = shape.stages * shape.parts;
  GPUTRAIN_ASSERT(std::ssize(times) == parts, "a time for each part of the model");
  constexpr double kNotYet = -1;
  const auto of_micro_batches = std::vector<double>(static_cast<size_t>(shape.micro_batches), kNotYet);
  // When each pass has ended: by direction, part of the model, and micro-batch.
  std::vector<std::vector<double>> forward(static_cast<size_t>(parts), of_micro_batches), backward = forward;
  std::vector<std::vector<Pass>> to_do;
  for (int64_t stage = 0; stage < shape.stages; ++stage) to_do.push_back(passes_of(shape, stage));
  std::vector<std::vector<TimedPass>> timed(stages);
  const auto can_begin_at = [&](const Pass& pass, int64_t part) {
    const auto of = [&](const std::vector<std::vector<double>>& ends, int64_t one) {
      return ends[static_cast<size_t>(one)][static_cast<size_t>(pass.micro_batch)];
    };
    if (pass.is_forward) return part == 0 ? 0 : of(forward, part - 1);
    return part == parts - 1 ? of(forward, part) : of(backward, part + 1);
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t stage = 0; stage < stages; ++stage) {
      while (timed[stage].size() < to_do[stage].size()) {
        const Pass& pass = to_do[stage][timed[stage].size()];
        const int64_t part = pass.part * shape.stages + static_cast<int64_t>(stage);
        const double ready = can_begin_at(pass, part), free = timed[stage].empty() ? 0 : timed[stage].back().end;
        if (ready == kNotYet) break;
        const double begin = std::max(ready, free), seconds = times[static_cast<size_t>(part)];
        const double end = begin + (pass.is_forward ? seconds : 2 * seconds);
        auto& ends = pass.is_forward ? forward : backward;
        ends[static_cast<size_t>(part)][static_cast<size_t>(pass.micro_batch)] = end;
        timed[stage].push_back({pass, begin, end});
        moves = true;
      }
    }
  }
  for (size_t stage = 0; stage < stages; ++stage)
    GPUTRAIN_ASSERT(timed[stage].size() == to_do[stage].size(), "no stage waits for ever");
  return timed;
}

double bubble_of(const std::vector<std::vector<TimedPass>>& stages) {
  double busy = 0, end = 0;
  for (const auto& passes : stages) {
    for (const TimedPass& one : passes) busy += one.end - one.begin;
    end = std::max(end, passes.back().end);
  }
  return 1 - busy / (end * static_cast<double>(stages.size()));
}

std::vector<int64_t> cut_units(const std::vector<double>& costs, int64_t parts) {
  const auto units = std::ssize(costs);
  GPUTRAIN_ASSERT(parts <= std::ranges::count_if(costs, [](double cost) { return cost > 0; }), "a unit for each part");
  // best[p][u]: of the first u units in p parts, the cost of the most expensive part, then the sum of squares, by which
  // the other parts are alike.
  struct Best {
    double most = std::numeric_limits<double>::infinity(), squares = 0;
    int64_t begin = 0;  // of the last part
    bool operator<(const Best& other) const { return std::pair(most, squares) < std::pair(other.most, other.squares); }
  };
  const auto at = [](int64_t index) { return static_cast<size_t>(index); };
  std::vector<std::vector<Best>> best(at(parts + 1), std::vector<Best>(at(units + 1)));
  best[0][0] = {.most = 0};
  for (int64_t part = 1; part <= parts; ++part) {
    for (int64_t end = 1; end <= units; ++end) {
      double cost = 0;
      for (int64_t begin = end - 1; begin >= 0; --begin) {
        cost += costs[at(begin)];
        const Best& before = best[at(part - 1)][at(begin)];
        if (cost == 0 || std::isinf(before.most)) continue;
        const Best now{.most = std::max(before.most, cost), .squares = before.squares + cost * cost, .begin = begin};
        if (now < best[at(part)][at(end)]) best[at(part)][at(end)] = now;
      }
    }
  }
  std::vector<int64_t> begins{units};
  for (int64_t part = parts; part > 0; --part) begins.push_back(best[at(part)][at(begins.back())].begin);
  std::ranges::reverse(begins);
  return begins;
}

int64_t stage_of_unit(int64_t unit, const std::vector<int64_t>& begins, int64_t stages) {
  const auto after = std::ranges::upper_bound(begins, unit);
  return (after - begins.begin() - 1) % stages;
}

}  // namespace gputrain::parallel

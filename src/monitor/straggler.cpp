#include "gputrain/monitor/straggler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gputrain::monitor {
namespace {

using device::kPhases;
using device::Phase;
using device::PhaseTimes;

bool is_work(size_t phase) { return static_cast<Phase>(phase) != Phase::communication; }

double work_of(const PhaseTimes& times) {
  double sum = 0;
  for (size_t i = 0; i < kPhases; ++i) sum += is_work(i) ? times[i] : 0;
  return sum;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

template <class Value>
double median_of_others(const std::vector<PhaseTimes>& ranks, size_t one, const Value& value) {
  std::vector<double> values;
  for (size_t i = 0; i < ranks.size(); ++i)
    if (i != one) values.push_back(value(ranks[i]));
  return median(std::move(values));
}

/// Returns the phase in which the rank loses most against the others.
Phase worst_phase(const std::vector<PhaseTimes>& ranks, size_t rank) {
  size_t worst = 0;
  double most = -1;
  for (size_t i = 0; i < kPhases; ++i) {
    if (!is_work(i)) continue;
    const double lost =
        ranks[rank][i] - median_of_others(ranks, rank, [i](const PhaseTimes& times) { return times[i]; });
    if (lost <= most) continue;
    most = lost;
    worst = i;
  }
  return static_cast<Phase>(worst);
}

/// Returns the slowest of ranks that do the same work; empty: there is nothing to compare.
std::optional<Straggler> slowest_of(const std::vector<PhaseTimes>& ranks) {
  if (ranks.size() < 2) return std::nullopt;
  const auto slow = static_cast<size_t>(
      std::ranges::max_element(ranks, {}, [](const PhaseTimes& times) { return work_of(times); }) - ranks.begin());
  const double others = median_of_others(ranks, slow, work_of);
  if (others <= 0) return std::nullopt;
  return Straggler{.rank = static_cast<int>(slow),
                   .phase = worst_phase(ranks, slow),
                   .excess = (work_of(ranks[slow]) - others) / others};
}

const char* in_words(Phase phase) {
  switch (phase) {
    case Phase::load:
      return "data wait";
    case Phase::copy:
      return "copy to the device";
    case Phase::graph:
      return "the whole step";
    default:
      return device::name_of(phase);
  }
}

bool is_same(const std::optional<Straggler>& one, const Straggler& other) {
  return one && one->rank == other.rank && one->phase == other.phase;
}

}  // namespace

std::string describe(const Straggler& straggler, const std::vector<std::string>& places) {
  return "rank " + std::to_string(straggler.rank) + " @ " + places.at(static_cast<size_t>(straggler.rank)) + " +" +
         std::to_string(std::lround(100 * straggler.excess)) + " %, " + in_words(straggler.phase);
}

std::optional<Straggler> StragglerFinder::look(const std::vector<PhaseTimes>& ranks) {
  slowest_.reset();
  const size_t alike = alike_ > 0 ? alike_ : ranks.size();
  for (size_t begin = 0; begin + alike <= ranks.size(); begin += alike) {
    const auto first = ranks.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto found = slowest_of({first, first + static_cast<std::ptrdiff_t>(alike)});
    if (!found || (slowest_ && found->excess <= slowest_->excess)) continue;
    slowest_ = found;
    slowest_->rank += static_cast<int>(begin);
  }
  if (!slowest_) return std::nullopt;
  if (slowest_->excess < kLeastExcess) {
    suspect_.reset();
    told_.reset();
    return std::nullopt;
  }
  windows_ = is_same(suspect_, *slowest_) ? windows_ + 1 : 1;
  suspect_ = slowest_;
  if (windows_ < kWindows || is_same(told_, *slowest_)) return std::nullopt;
  told_ = slowest_;
  return slowest_;
}

}  // namespace gputrain::monitor

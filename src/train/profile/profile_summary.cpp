#include "profile_summary.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace gputrain::train {
namespace {

using Kind = ProfiledEvent::Kind;
using Costs = std::map<std::string, ProfileCost>;
using Interval = std::pair<int64_t, int64_t>;

/// Returns the intervals of the steps: disjoint, in order.
std::vector<Interval> steps_in(const std::vector<ProfiledEvent>& events) {
  std::vector<Interval> steps;
  for (const ProfiledEvent& event : events) {
    if (event.kind == Kind::range && event.name == kStepRange) steps.emplace_back(event.begin_ns, event.end_ns);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool lies_within(const std::vector<Interval>& steps, const ProfiledEvent& event) {
  const auto after = std::upper_bound(steps.begin(), steps.end(), Interval{event.begin_ns, INT64_MAX});
  return after != steps.begin() && event.end_ns <= std::prev(after)->second;
}

std::vector<ProfileCost> sorted(const Costs& costs, double ProfileCost::*by) {
  std::vector<ProfileCost> list;
  for (const auto& [name, cost] : costs) list.push_back(cost);
  std::stable_sort(list.begin(), list.end(),
                   [by](const ProfileCost& a, const ProfileCost& b) { return a.*by > b.*by; });
  return list;
}

/// Goes through the events of one thread in order, with the open ones on a stack.
class ThreadWalk {
 public:
  ThreadWalk(Costs& operators, Costs& ranges, const std::vector<UnitPass>& passes, std::vector<UnitCost>& units)
      : operators_(operators), ranges_(ranges), passes_(passes), units_(units) {}

  void take(const ProfiledEvent& event) {
    while (!open_.empty() && open_.back()->end_ns <= event.begin_ns) open_.pop_back();
    if (!open_.empty()) cost_of(*open_.back()).self_seconds -= event.seconds();
    ProfileCost& cost = cost_of(event);
    ++cost.calls;
    cost.self_seconds += event.seconds();
    cost.flops += event.flops;
    if (!is_open(&ProfiledEvent::name, event)) cost.total_seconds += event.seconds();
    if (event.kind == Kind::unit || (event.kind == Kind::backward && !is_open(&ProfiledEvent::kind, event)))
      add_to_unit(event);
    open_.push_back(&event);
  }

 private:
  ProfileCost& cost_of(const ProfiledEvent& event) {
    const bool is_range = event.kind == Kind::range || event.kind == Kind::unit;
    ProfileCost& cost = (is_range ? ranges_ : operators_)[event.name];
    cost.name = event.name;
    return cost;
  }

  template <class Member>
  bool is_open(Member ProfiledEvent::*member, const ProfiledEvent& event) const {
    return std::any_of(open_.begin(), open_.end(),
                       [&](const ProfiledEvent* outer) { return outer->*member == event.*member; });
  }

  void add_to_unit(const ProfiledEvent& event) {
    if (event.kind == Kind::unit) {
      unit(event.name).forward_seconds += event.seconds();
      return;
    }
    // Passes are in the order of their numbers.
    const auto after = std::upper_bound(passes_.begin(), passes_.end(), event.sequence,
                                        [](int64_t number, const UnitPass& pass) { return number < pass.first; });
    if (event.sequence < 0 || after == passes_.begin() || event.sequence >= std::prev(after)->end) return;
    unit(std::prev(after)->unit).backward_seconds += event.seconds();
  }

  UnitCost& unit(const std::string& name) {
    const auto found =
        std::find_if(units_.begin(), units_.end(), [&](const UnitCost& one) { return one.name == name; });
    if (found != units_.end()) return *found;
    return units_.emplace_back(UnitCost{.name = name});
  }

  Costs &operators_, &ranges_;
  const std::vector<UnitPass>& passes_;
  std::vector<UnitCost>& units_;
  std::vector<const ProfiledEvent*> open_;
};

/// Events in order of time, kernels of several streams among them: adds up when at least one runs.
void add_device(const ProfiledEvent& event, Costs& kernels, int64_t& busy_until, double& busy_seconds) {
  ProfileCost& cost = kernels[event.name];
  cost.name = event.name;
  ++cost.calls;
  cost.self_seconds += event.seconds();
  cost.total_seconds += event.seconds();
  const int64_t begin = std::max(event.begin_ns, busy_until);
  if (event.end_ns > begin) busy_seconds += 1e-9 * static_cast<double>(event.end_ns - begin);
  busy_until = std::max(busy_until, event.end_ns);
}

}  // namespace

double ProfileSummary::range_seconds(const std::string& name) const {
  const auto found =
      std::find_if(ranges.begin(), ranges.end(), [&](const ProfileCost& range) { return range.name == name; });
  return found == ranges.end() ? 0 : found->total_seconds;
}

ProfileSummary summarize_profile(std::vector<ProfiledEvent> events, const std::vector<UnitPass>& passes) {
  std::stable_sort(events.begin(), events.end(), [](const ProfiledEvent& a, const ProfiledEvent& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  const std::vector<Interval> steps = steps_in(events);
  ProfileSummary summary;
  summary.steps = static_cast<int64_t>(steps.size());
  for (const auto& [begin, end] : steps) summary.seconds += 1e-9 * static_cast<double>(end - begin);
  Costs operators, ranges, kernels;
  int64_t busy_until = 0;
  std::map<uint64_t, ThreadWalk> threads;
  for (const ProfiledEvent& event : events) {
    if (!lies_within(steps, event)) continue;
    if (event.kind == Kind::device) {
      add_device(event, kernels, busy_until, summary.busy_seconds);
    } else {
      threads.try_emplace(event.track, operators, ranges, passes, summary.units).first->second.take(event);
    }
  }
  summary.operators = sorted(operators, &ProfileCost::self_seconds);
  summary.ranges = sorted(ranges, &ProfileCost::total_seconds);
  summary.kernels = sorted(kernels, &ProfileCost::self_seconds);
  for (const ProfileCost& one : summary.operators) summary.flops += one.flops;
  return summary;
}

}  // namespace gputrain::train

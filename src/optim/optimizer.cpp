#include "gputrain/optim/optimizer.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "gputrain/core/error.hpp"

namespace gputrain::optim {

Optimizer::~Optimizer() = default;

void Optimizer::count_since(const std::map<std::string, double>&) {}

OptimizerCatalog& catalog() {
  static OptimizerCatalog catalog("optimizer");
  return catalog;
}

namespace {

std::vector<at::Tensor> views_of(const at::Tensor& flat, const std::vector<device::Range>& ranges, int64_t begin) {
  std::vector<at::Tensor> views;
  views.reserve(ranges.size());
  for (const device::Range& range : ranges) views.push_back(flat.narrow(0, range.begin - begin, range.size()));
  return views;
}

}  // namespace

std::vector<at::Tensor> UpdateGroup::slices(const at::Tensor& flat) const { return views_of(flat, ranges, 0); }

std::vector<at::Tensor> UpdateGroup::state_slices(const at::Tensor& state) const {
  return views_of(state, ranges, owned_begin);
}

at::Tensor UpdateGroup::rate(const at::Tensor& lr) const { return lr_factor == 1 ? lr : lr.mul(lr_factor); }

namespace {

at::Tensor gradient_of(const device::Arena& arena, const device::Segment& segment) {
  return arena.keeps_owned_gradients_only() ? arena.state_view(arena.owned_gradients(), segment)
                                            : arena.view(arena.gradients(), segment);
}

double decay_of(const device::Segment& segment, double weight_decay) {
  return segment.decays ? segment.settings.weight_decay.value_or(weight_decay) : 0;
}

}  // namespace

std::vector<UpdateGroup> update_groups(const device::Arena& arena, double weight_decay,
                                       const std::map<std::string, double>& since) {
  const device::Range& owned = arena.owned();
  std::vector<UpdateGroup> groups;
  for (const device::Segment& segment : arena.segments()) {
    const int64_t begin = std::max(segment.offset, owned.begin),
                  end = std::min(segment.offset + segment.padded, owned.end);
    if (begin >= end) continue;
    const auto late = since.find(segment.name);
    const UpdateGroup wanted{.weight_decay = decay_of(segment, weight_decay),
                             .lr_factor = segment.settings.lr_factor,
                             .since = late == since.end() ? 0 : late->second,
                             .ranges = {},
                             .owned_begin = owned.begin};
    auto group = std::ranges::find_if(groups, [&](const UpdateGroup& one) {
      return std::tie(one.weight_decay, one.lr_factor, one.since) ==
             std::tie(wanted.weight_decay, wanted.lr_factor, wanted.since);
    });
    if (group == groups.end()) group = groups.insert(group, wanted);
    if (group->ranges.empty() || group->ranges.back().end != begin) {
      group->ranges.push_back({.begin = begin, .end = end});
    } else {
      group->ranges.back().end = end;
    }
  }
  return groups;
}

namespace {

std::set<std::string>& rules_of_whole_tensors() {
  static std::set<std::string> rules;
  return rules;
}

}  // namespace

WholeTensors::WholeTensors(const std::string& rule) { rules_of_whole_tensors().insert(rule); }

bool takes_whole_tensors(const std::string& rule) { return rules_of_whole_tensors().contains(rule); }

std::vector<OwnedTensor> owned_tensors(const device::Arena& arena, double weight_decay) {
  const device::Range& owned = arena.owned();
  std::vector<OwnedTensor> tensors;
  for (const device::Segment& segment : arena.segments()) {
    const int64_t end = segment.offset + segment.padded;
    if (end <= owned.begin || segment.offset >= owned.end) continue;
    GPUTRAIN_ASSERT(owned.begin <= segment.offset && end <= owned.end, "the rank owns a part of " + segment.name);
    tensors.push_back({.segment = segment,
                       .value = arena.view(arena.values(), segment),
                       .gradient = gradient_of(arena, segment),
                       .weight_decay = decay_of(segment, weight_decay),
                       .lr_factor = segment.settings.lr_factor});
  }
  return tensors;
}

at::Tensor copy_to_write(const device::Arena& arena) {
  const bool owns_all = arena.owned().size() == arena.values().numel();
  return arena.working_copy() && owns_all ? arena.working_copy()->tensor() : at::Tensor();
}

void note_update(const device::Arena& arena, bool wrote_copy) {
  if (arena.working_copy()) arena.working_copy()->note_update(wrote_copy);
}

std::vector<ops::FlatStretch> flat_stretches(const std::vector<UpdateGroup>& groups) {
  std::vector<ops::FlatStretch> stretches;
  for (const UpdateGroup& group : groups) {
    for (const device::Range& range : group.ranges) {
      stretches.push_back({.begin = range.begin - group.owned_begin,
                           .end = range.end - group.owned_begin,
                           .weight_decay = group.weight_decay,
                           .lr_factor = group.lr_factor,
                           .since = group.since});
    }
  }
  std::sort(stretches.begin(), stretches.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return stretches;
}

}  // namespace gputrain::optim

#include "gputrain/optim/optimizer.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"

namespace gputrain::optim {

Optimizer::~Optimizer() = default;

void Optimizer::count_since(const std::map<std::string, double>&) {}
void Optimizer::begin_anew(const std::string&) {}

std::vector<at::Tensor> Optimizer::State::large() const {
  std::vector<at::Tensor> tensors;
  for (const auto& [kind, tensor] : flat) tensors.push_back(tensor);
  for (const OfWeights& kind : of_weights) {
    for (const auto& [weight, tensor] : kind.tensors) tensors.push_back(tensor);
  }
  return tensors;
}

OptimizerCatalog& catalog() {
  static OptimizerCatalog catalog("optimizer");
  return catalog;
}

namespace {

std::vector<at::Tensor> views_of(const at::Tensor& flat, const std::vector<UpdateRange>& ranges,
                                 int64_t UpdateRange::* at) {
  std::vector<at::Tensor> views;
  views.reserve(ranges.size());
  for (const UpdateRange& range : ranges) views.push_back(flat.narrow(0, range.*at, range.size));
  return views;
}

}  // namespace

std::vector<at::Tensor> UpdateGroup::values(const device::Arena& arena) const {
  return views_of(arena.kept_values(), ranges, &UpdateRange::values_at);
}

std::vector<at::Tensor> UpdateGroup::gradients(const device::Arena& arena) const {
  return views_of(arena.kept_gradients(), ranges, &UpdateRange::gradients_at);
}

std::vector<at::Tensor> UpdateGroup::states(const at::Tensor& state) const {
  return views_of(state, ranges, &UpdateRange::state_at);
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

uint64_t rounding_key(const device::Arena& arena, const std::string& tensor) {
  return mix(arena.rounding_seed(), stable_hash(tensor));
}

std::vector<UpdateGroup> update_groups(const device::Arena& arena, double weight_decay,
                                       const std::map<std::string, double>& since, Ranges ranges) {
  std::vector<UpdateGroup> groups;
  const auto add = [&](const device::Segment& segment, const UpdateRange& range) {
    const auto late = since.find(segment.name);
    const UpdateGroup wanted{.weight_decay = decay_of(segment, weight_decay),
                             .lr_factor = segment.settings.lr_factor,
                             .since = late == since.end() ? 0 : late->second,
                             .ranges = {}};
    auto group = std::ranges::find_if(groups, [&](const UpdateGroup& one) {
      return std::tie(one.weight_decay, one.lr_factor, one.since) ==
             std::tie(wanted.weight_decay, wanted.lr_factor, wanted.since);
    });
    if (group == groups.end()) group = groups.insert(group, wanted);
    const auto follows = [&](const UpdateRange& last) {
      return ranges == Ranges::joined && last.values_at + last.size == range.values_at && last.state_at + last.size == range.state_at;
    };
    if (group->ranges.empty() || !follows(group->ranges.back())) {
      group->ranges.push_back(range);
    } else {
      group->ranges.back().size += range.size;
    }
  };
  auto piece = arena.owned().begin();
  for (const device::Segment& segment : arena.segments()) {
    const int64_t end = segment.offset + segment.padded;
    while (piece != arena.owned().end() && piece->range.end <= segment.offset) ++piece;
    for (auto here = piece; here != arena.owned().end() && here->range.begin < end; ++here) {
      const int64_t first = std::max(segment.offset, here->range.begin), last = std::min(end, here->range.end);
      const int64_t in_state = here->at + first - here->range.begin;
      add(segment, {.size = last - first,
                    .values_at = arena.keeps_owned_values_only() ? in_state : first,
                    .gradients_at = arena.keeps_owned_gradients_only() ? in_state : first,
                    .state_at = in_state,
                    .rounded = {.key = rounding_key(arena, segment.name), .begin = first - segment.offset}});
    }
  }
  return groups;
}

std::vector<OwnedTensor> owned_tensors(const device::Arena& arena, double weight_decay) {
  std::vector<OwnedTensor> tensors;
  for (const device::Segment& segment : arena.segments()) {
    const int64_t end = segment.offset + segment.padded;
    const auto piece = std::ranges::find_if(arena.owned(), [&](const device::Piece& one) {
      return one.range.begin < end && segment.offset < one.range.end;
    });
    if (piece == arena.owned().end()) continue;
    const bool is_whole = piece->range.begin <= segment.offset && end <= piece->range.end;
    GPUTRAIN_ASSERT(is_whole, "the rank owns a part of " + segment.name);
    tensors.push_back({.segment = segment,
                       .value = arena.view(arena.values(), segment),
                       .gradient = gradient_of(arena, segment),
                       .weight_decay = decay_of(segment, weight_decay),
                       .lr_factor = segment.settings.lr_factor});
  }
  return tensors;
}

at::Tensor copy_to_write(const device::Arena& arena) {
  return arena.working_copy() && arena.owns_all() ? arena.working_copy()->tensor() : at::Tensor();
}

void note_update(const device::Arena& arena, bool wrote_copy) {
  if (arena.working_copy()) arena.working_copy()->note_update(wrote_copy);
}

std::vector<ops::FlatStretch> flat_stretches(const std::vector<UpdateGroup>& groups) {
  std::vector<ops::FlatStretch> stretches;
  for (const UpdateGroup& group : groups) {
    for (const UpdateRange& range : group.ranges) {
      stretches.push_back({.begin = range.state_at,
                           .end = range.state_at + range.size,
                           .weight_decay = group.weight_decay,
                           .lr_factor = group.lr_factor,
                           .since = group.since,
                           .values_shift = range.values_at - range.state_at,
                           .gradients_shift = range.gradients_at - range.state_at,
                           .rounded = range.rounded});
    }
  }
  std::sort(stretches.begin(), stretches.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return stretches;
}

}  // namespace gputrain::optim

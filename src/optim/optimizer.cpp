#include "gputrain/optim/optimizer.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace gputrain::optim {

Optimizer::~Optimizer() = default;

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

std::vector<at::Tensor> DecayGroup::slices(const at::Tensor& flat) const { return views_of(flat, ranges, 0); }

std::vector<at::Tensor> DecayGroup::state_slices(const at::Tensor& state) const {
  return views_of(state, ranges, owned_begin);
}

std::vector<DecayGroup> decay_groups(const device::Arena& arena, double weight_decay) {
  const device::Range& owned = arena.owned();
  DecayGroup decaying{.weight_decay = weight_decay, .owned_begin = owned.begin}, plain{.owned_begin = owned.begin};
  const bool is_one_group = weight_decay == 0;
  for (device::Range range : is_one_group ? std::vector<device::Range>{owned} : arena.decay_ranges()) {
    range.begin = std::max(range.begin, owned.begin);
    range.end = std::min(range.end, owned.end);
    if (range.begin < range.end) (!is_one_group && range.decays ? decaying : plain).ranges.push_back(range);
  }
  std::vector<DecayGroup> groups;
  for (DecayGroup& group : {std::ref(decaying), std::ref(plain)}) {
    if (!group.ranges.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

at::Tensor copy_to_write(const device::Arena& arena) {
  const bool owns_all = arena.owned().size() == arena.values().numel();
  return arena.working_copy() && owns_all ? arena.working_copy()->tensor() : at::Tensor();
}

void note_update(const device::Arena& arena, bool wrote_copy) {
  if (arena.working_copy()) arena.working_copy()->note_update(wrote_copy);
}

std::vector<ops::FlatStretch> flat_stretches(const std::vector<DecayGroup>& groups) {
  std::vector<ops::FlatStretch> stretches;
  for (const DecayGroup& group : groups) {
    for (const device::Range& range : group.ranges) {
      stretches.push_back({range.begin - group.owned_begin, range.end - group.owned_begin, group.weight_decay});
    }
  }
  std::sort(stretches.begin(), stretches.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return stretches;
}

}  // namespace gputrain::optim

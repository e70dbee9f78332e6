#include "gputrain/optim/optimizer.hpp"

#include <functional>
#include <utility>

namespace gputrain::optim {

Optimizer::~Optimizer() = default;

OptimizerCatalog& catalog() {
  static OptimizerCatalog catalog("optimizer");
  return catalog;
}

std::vector<at::Tensor> DecayGroup::slices(const at::Tensor& flat) const {
  std::vector<at::Tensor> slices;
  slices.reserve(ranges.size());
  for (const device::Range& range : ranges) slices.push_back(flat.narrow(0, range.begin, range.size()));
  return slices;
}

std::vector<DecayGroup> decay_groups(const device::Arena& arena, double weight_decay) {
  if (weight_decay == 0) return {{.ranges = {{.begin = 0, .end = arena.values().numel()}}}};
  DecayGroup decaying{.weight_decay = weight_decay}, plain{.weight_decay = 0};
  for (const device::Range& range : arena.decay_ranges()) (range.decays ? decaying : plain).ranges.push_back(range);
  std::vector<DecayGroup> groups;
  for (DecayGroup& group : {std::ref(decaying), std::ref(plain)}) {
    if (!group.ranges.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace gputrain::optim

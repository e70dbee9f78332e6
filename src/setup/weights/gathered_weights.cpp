// Weights of a model if perhaps no rank has all of them.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include "gputrain/device/arena.hpp"
#include "gputrain/models/adapter.hpp"
#include "gputrain/nn/split.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {

int BuiltModel::tensor_ranks() const {
  const comm::Group* group = model->context().tensor_group;
  return group == nullptr ? 1 : group->size();
}

namespace {

/// Returns whether a parameter can be gathered now: while `unit` is at hand, if ranks share out the values.
bool is_at_hand(const BuiltModel& built, const std::string& name, const nn::Parameter& parameter,
                std::optional<int64_t> unit) {
  if (built.pipeline == nullptr) return device::has_memory(parameter.value);
  return !unit || built.units.at(name) == *unit;
}

/// Returns a parameter, or the whole of it if ranks share it, from any stage. Every rank must call.
at::Tensor whole_parameter(const BuiltModel& built, const std::string& name, const nn::Parameter& parameter) {
  const at::Tensor value = parameter.value.detach();
  const auto whole_here = [&] {
    return parameter.split ? nn::whole_of(*parameter.split, value, *built.model->context().tensor_group) : value;
  };
  if (built.pipeline == nullptr) return whole_here();
  const int64_t unit = built.units.at(name);
  at::Tensor whole;
  if (built.pipeline->is_here(unit)) {
    whole = whole_here().contiguous();
  } else {
    std::vector<int64_t> sizes = value.sizes().vec();
    whole = at::empty(parameter.split ? parameter.split->whole_sizes(std::move(sizes)) : sizes, value.options());
  }
  built.pipeline->broadcast(whole, unit, name);
  return whole;
}

}  // namespace

void each_weight(BuiltModel& built, const std::function<void(const std::string& name, const at::Tensor& values)>& visit,
                 parallel::Values which) {
  const auto visit_those = [&](bool trainable, std::optional<int64_t> unit) {
    built.model->each_parameter([&](const std::string& name, const nn::Parameter& parameter) {
      if (parameter.trainable == trainable && is_at_hand(built, name, parameter, unit))
        visit(name, whole_parameter(built, name, parameter));
    });
  };
  const auto visit_all = [&](std::optional<int64_t> unit) {
    if (which != parallel::Values::trained) visit_those(/*trainable=*/false, unit);
    if (which != parallel::Values::frozen) visit_those(/*trainable=*/true, unit);
  };
  if (!built.sharded) return visit_all({});
  for (int64_t unit = 0; unit < built.sharded->units(); ++unit)
    built.sharded->with_unit(
        unit, [&] { visit_all(unit); }, which);
}

namespace {

checkpoint::NamedTensors live_weights(models::Model& model, parallel::Values which) {
  switch (which) {
    case parallel::Values::trained:
      return trained_weights(model);
    case parallel::Values::frozen:
      return frozen_weights(model);
    default:
      return named_weights(model);
  }
}

/// Copies values that ranks share out to rank 0, unit by unit after a call of `change`. Every rank must call.
checkpoint::NamedTensors gather(
    BuiltModel& built, const RankContext& context, parallel::Values which,
    const std::function<void()>& change = [] {}) {
  std::map<std::string, at::Tensor> gathered;
  const auto keep = [&](std::optional<int64_t> unit) {
    if (context.rank() == 0) change();
    built.model->each_parameter([&](const std::string& name, const nn::Parameter& parameter) {
      if (!is_at_hand(built, name, parameter, unit)) return;
      const at::Tensor whole = whole_parameter(built, name, parameter);
      if (context.rank() == 0) gathered[name] = whole.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    });
  };
  if (!built.sharded) keep({});
  for (int64_t unit = 0; built.sharded && unit < built.sharded->units(); ++unit)
    built.sharded->with_unit(
        unit, [&] { keep(unit); }, which);
  if (context.rank() != 0) return {};
  checkpoint::NamedTensors weights = live_weights(*built.model, which);  // buffers included
  for (auto& [name, tensor] : weights) {
    if (const auto found = gathered.find(name); found != gathered.end()) tensor = found->second;
  }
  return weights;
}

}  // namespace

checkpoint::NamedTensors gathered_weights(BuiltModel& built, const RankContext& context, parallel::Values which) {
  return built.has_parts() ? gather(built, context, which) : live_weights(*built.model, which);
}

checkpoint::NamedTensors merged_weights(BuiltModel& built, const RankContext& context) {
  const auto merge = [&] { models::merge_adapter(*built.model); };
  if (built.sharded) return gather(built, context, parallel::Values::all, merge);
  merge();
  return named_weights(*built.model);
}

}  // namespace gputrain::app

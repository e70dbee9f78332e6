#include "arena_tensors.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "gputrain/config/name_patterns.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"

namespace gputrain::app {
namespace {

using Names = std::vector<std::string>;

Names parameter_names(models::Model& model) {
  Names names;
  model.each_parameter([&](const std::string& name, const nn::Parameter&) { names.push_back(name); });
  return names;
}

void check_matches(const Job& job, const std::string& key, std::string_view pattern, const Names& names) {
  if (std::ranges::any_of(names, [&](const std::string& name) { return config::matches(pattern, name); })) return;
  throw job.loaded.error(key, "'" + std::string(pattern) + "' matches no parameter of the model",
                         config::pattern_hint(pattern, names));
}

}  // namespace

void freeze_parameters(const Job& job, models::Model& model) {
  const Names names = parameter_names(model);
  const Names& patterns = job.spec().model.freeze;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const std::string_view pattern = patterns[i];
    const std::string key = "model.freeze[" + std::to_string(i) + "]";
    check_matches(job, key, config::signed_pattern(pattern).pattern, names);
  }
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (config::are_for(patterns, name, /*otherwise=*/false)) parameter.freeze();
  });
  if (model.is_trained()) return;
  const std::string head = names.back().substr(0, names.back().rfind('.'));
  throw job.loaded.error("model.freeze", "every parameter is frozen: nothing is left to train",
                         "add a pattern with ! for what is trained: '!" + head + ".*'");
}

namespace {

void check_groups(const Job& job, models::Model& model, const Names& names) {
  const auto& groups = job.spec().optimizer.groups;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string key = "optimizer.groups[" + std::to_string(i) + "]";
    for (const std::string& pattern : groups[i].match.values) check_matches(job, key + ".match", pattern, names);
    bool has_trainable = false;
    model.each_parameter([&](const std::string& name, const nn::Parameter& parameter) {
      has_trainable = has_trainable || (parameter.trainable && groups[i].holds(name));
    });
    if (!has_trainable) log::warning(key + " has no effect: all of its parameters are frozen");
  }
}

device::ArenaTensor tensor_of(const optim::OptimizerSpec& optimizer, const std::string& name,
                              const nn::Parameter& parameter, at::ScalarType compute) {
  device::ArenaTensor arena_tensor{
      .name = name,
      .value = parameter.value,
      .decays = optimizer.decays(parameter.role),
      .role = parameter.role,
      .trainable = parameter.trainable,
      // Reads of a trained table's rows are in the master type.
      .read_in_master = parameter.read_as == nn::ReadAs::master || parameter.role == nn::ParameterRole::embedding};
  if (!parameter.trainable && parameter.read_as == nn::ReadAs::compute) arena_tensor.frozen_type = compute;
  return arena_tensor;
}

}  // namespace

std::vector<device::ArenaTensor> arena_tensors_of(const Job& job, models::Model& model) {
  const optim::OptimizerSpec& optimizer = job.spec().optimizer;
  const Names names = parameter_names(model);
  check_groups(job, model, names);
  struct Known {
    std::string name;
    std::string unit;  // unit that holds it; empty: none yet
  };
  std::map<const void*, Known> known;
  model.each_parameter([&](const std::string& name, const nn::Parameter& parameter) {
    known[parameter.value.unsafeGetTensorImpl()] = {name, {}};
  });
  std::vector<device::ArenaTensor> arena_tensors;
  const auto units = model.units();
  for (size_t number = 0; number < units.size(); ++number) {
    const std::string told = "unit '" + units[number].name + "'";
    for (nn::Module* module : units[number].modules) {
      GPUTRAIN_ASSERT(module != nullptr, told + " lists a module that is null");
      module->each_parameter([&](const std::string& inner, nn::Parameter& parameter) {
        const auto found = known.find(parameter.value.unsafeGetTensorImpl());
        GPUTRAIN_ASSERT(found != known.end(), told + " holds a parameter '" + inner + "' that the model does not");
        auto& [name, holder] = found->second;
        GPUTRAIN_ASSERT(holder.empty(), "parameter '" + name + "' is in " + holder + " and again in " + told);
        holder = told;
        arena_tensors.push_back(tensor_of(optimizer, name, parameter, model.context().policy.compute));
        arena_tensors.back().unit = static_cast<int64_t>(number);
        arena_tensors.back().split = parameter.split;
        arena_tensors.back().settings = optimizer.settings_of(name, static_cast<int64_t>(number), std::ssize(units));
      });
    }
  }
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {  // the order is the same on all ranks
    const bool is_in_a_unit = !known.at(parameter.value.unsafeGetTensorImpl()).unit.empty();
    GPUTRAIN_ASSERT(is_in_a_unit, "parameter '" + name + "' is in none of the model's units");
  });
  return arena_tensors;
}

}  // namespace gputrain::app

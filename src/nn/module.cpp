#include "gputrain/nn/module.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "gputrain/core/error.hpp"
#include "gputrain/device/arena.hpp"

namespace gputrain::nn {
namespace {

template <class Named>
void check_name(const std::deque<Named>& known, const std::string& name) {
  GPUTRAIN_ASSERT(!name.empty() && name.find('.') == std::string::npos, "a name is empty or has a dot: " + name);
  for (const Named& other : known) GPUTRAIN_ASSERT(other.name != name, "duplicate name: " + name);
}

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() || name.empty() ? prefix + name : prefix + "." + name;
}

}  // namespace

Module::~Module() = default;

void Parameter::freeze() {
  trainable = false;
  value.set_requires_grad(false);
}

at::Tensor Module::register_parameter(std::string name, at::IntArrayRef sizes, Init init, ParameterRole role,
                                      ReadAs read_as, std::optional<device::Split> split) {
  check_name(parameters_, name);
  GPUTRAIN_ASSERT(init.kind != Init::Kind::as_given, "parameter '" + name + "' needs initial values");
  // Not filled, so that its memory is not touched: the arena replaces it.
  const auto format =
      context_.channels_last && sizes.size() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const auto options = at::TensorOptions().dtype(context_.policy.master).device(context_.device);
  std::vector<int64_t> here = sizes.vec();
  if (split) here[static_cast<size_t>(split->dim)] = split->size_of(split->rank);
  at::Tensor value = at::empty(here, options, format).set_requires_grad(true);
  if (context_.takes_no_memory) device::take_memory(value);
  parameters_.push_back({.name = std::move(name),
                         .value = value,
                         .init = init,
                         .role = role,
                         .read_as = read_as,
                         .split = std::move(split)});
  return value;
}

void Module::replace_parameters(const std::vector<std::string>& names,
                                const std::vector<std::pair<std::string, at::Tensor>>& frozen) {
  ParameterRole role = ParameterRole::weight;
  for (const std::string& name : names) {
    const auto old = std::ranges::find(parameters_, name, &Parameter::name);
    GPUTRAIN_ASSERT(old != parameters_.end() && !old->split, "a whole parameter: " + name);
    role = old->role;
    parameters_.erase(old);
  }
  for (const auto& [name, value] : frozen) {
    check_name(parameters_, name);
    parameters_.push_back({.name = name,
                           .value = value,
                           .init = Init::as_given(),
                           .role = role,
                           .read_as = ReadAs::master,
                           .trainable = false});
  }
}

at::Tensor Module::register_buffer(std::string name, at::Tensor value, Init init) {
  check_name(buffers_, name);
  buffers_.push_back({std::move(name), value, init});
  return value;
}

void Module::adopt_child(std::string name, std::unique_ptr<Module> child) {
  for (const auto& [known, unused] : children_) GPUTRAIN_ASSERT(known != name, "two children named " + name);
  children_.emplace_back(std::move(name), std::move(child));
}

void Module::each_module(const std::function<void(const std::string& name, Module&)>& visit) {
  const std::function<void(const std::string&, Module&)> descend = [&](const std::string& prefix, Module& module) {
    visit(prefix, module);
    for (const auto& [name, child] : module.children_) descend(joined(prefix, name), *child);
  };
  descend("", *this);
}

void Module::each_parameter(const std::function<void(const std::string& name, Parameter&)>& visit) {
  each_module([&](const std::string& prefix, Module& module) {
    for (Parameter& parameter : module.parameters_) visit(joined(prefix, parameter.name), parameter);
  });
}

void Module::each_buffer(const std::function<void(const std::string& name, Buffer&)>& visit) {
  each_module([&](const std::string& prefix, Module& module) {
    for (Buffer& buffer : module.buffers_) visit(joined(prefix, buffer.name), buffer);
  });
}

bool Module::is_trained() const {
  for (const Parameter& parameter : parameters_)
    if (parameter.trainable) return true;
  for (const auto& [name, child] : children_)
    if (child->is_trained()) return true;
  return false;
}

void Module::train(bool on) {
  each_module([on](const std::string&, Module& module) { module.training_ = on; });
}

}  // namespace gputrain::nn

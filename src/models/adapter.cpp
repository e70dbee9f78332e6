#include "gputrain/models/adapter.hpp"

#include <functional>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "adapters/targets.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/nn/layers.hpp"
#include "weight_matching.hpp"

namespace gputrain::models {
namespace {

constexpr const char* kPrefix = "base_model.model.";  // prefix of PEFT's wrappers round the model

using Visit = std::function<void(const std::string& layer, nn::Linear&)>;

void each_adapted_layer(Model& model, const Visit& visit) {
  model.each_module([&](const std::string& name, nn::Module& module) {
    auto* layer = dynamic_cast<nn::Linear*>(&module);
    if (layer != nullptr && layer->has_branch()) visit(name, *layer);
  });
}

}  // namespace

Adapter::~Adapter() = default;

AdapterCatalog& adapters() {
  static AdapterCatalog adapters("adapter");
  return adapters;
}

std::vector<std::string> branch_parameters(Model& model) {
  std::vector<std::string> names;
  model.each_module([&](const std::string& prefix, nn::Module& module) {
    if (dynamic_cast<nn::Branch*>(&module) == nullptr) return;
    module.each_parameter([&](const std::string& name, const nn::Parameter&) { names.push_back(prefix + "." + name); });
  });
  return names;
}

namespace {

/// Returns the names in PEFT's files of the parameters that an adapted model trains, by the model's own names.
std::map<std::string, std::string> names_in_files(Model& model) {
  const Published published(model);
  std::map<std::string, std::string> file_names;  // names of branches' parameters
  each_adapted_layer(model, [&](const std::string& layer, nn::Linear&) {
    for (const char* part : {".lora_A.weight", ".lora_B.weight"})
      file_names[layer + part] = published.module(layer) + part;
  });
  std::map<std::string, std::string> names;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (!parameter.trainable) return;
    const auto found = file_names.find(name);
    names[name] = kPrefix + (found != file_names.end() ? found->second : published.parameter(name));
  });
  return names;
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> adapter_weights(Model& model) {
  std::vector<std::pair<std::string, at::Tensor>> live;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (parameter.trainable) live.emplace_back(name, parameter.value.detach());
  });
  return adapter_weights(model, live);
}

std::vector<std::pair<std::string, at::Tensor>> adapter_weights(
    Model& model, const std::vector<std::pair<std::string, at::Tensor>>& weights) {
  const auto names = names_in_files(model);
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, tensor] : weights) {
    if (const auto found = names.find(name); found != names.end()) tensors.emplace_back(found->second, tensor);
  }
  return tensors;
}

namespace {

/// Returns the model's own weights that PEFT's files may hold beside an adapter, by their names there: those of adapted
/// layers, and with save_embedding_layers the embedding and the head. Undefined if ranks share a weight, or it is
/// packed.
std::map<std::string, at::Tensor> weights_of_the_base(Model& model, const std::vector<std::string>& names) {
  std::map<std::string, at::Tensor> frozen, found;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    const bool is_compared = !parameter.split && parameter.value.is_floating_point();
    if (!parameter.trainable) frozen.emplace(name, is_compared ? parameter.value.detach() : at::Tensor());
  });
  const auto family = family_of(model);
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string own = name.substr(std::string_view(kPrefix).size());
    const auto ours = frozen.find(family ? family->parameter_of(model, own) : own);
    if (ours != frozen.end()) found.emplace(name, ours->second);
  }
  const Published published(model);
  each_adapted_layer(model, [&](const std::string& layer, nn::Linear& linear) {
    const at::Tensor weight = linear.is_packed() ? at::Tensor() : linear.weight().detach();
    found[kPrefix + published.module(layer) + ".base_layer.weight"] = weight;
  });
  return found;
}

/// Removes the model's own weights from the source, and compares those that have memory; another call does the others.
void pass_over_weights_of_the_base(Model& model, TensorSource& source) {
  for (const auto& [name, ours] : weights_of_the_base(model, source.names)) {
    if (std::erase(source.names, name) == 0 || !ours.defined()) continue;
    const at::Tensor theirs = source.tensor(name);
    if (theirs.sizes() != ours.sizes()) {
      throw Error(ExitCode::data,
                  {.what = fmt::format("'{}' is {}, and the model's is {}: the base was resized before "
                                       "the adapter was trained, and the adapter's file holds the new one",
                                       name, fmt::join(theirs.sizes(), "x"), fmt::join(ours.sizes(), "x")),
                   .where = source.where,
                   .hint = "resize and merge with PEFT (resize_token_embeddings, merge_and_unload, "
                           "save_pretrained), and give that folder as model.pretrained"});
    }
    if (!device::has_memory(ours) || theirs.to(ours.options()).equal(ours)) continue;
    throw Error(ExitCode::data, {.what = "'" + name + "' is not the model's: it was trained, or beside other weights",
                                 .where = source.where,
                                 .hint = "model.pretrained: the weights beside which the adapter was trained; if it "
                                         "was trained itself, merge with PEFT (merge_and_unload, save_pretrained)"});
  }
}

/// Returns the names in files of parameters that have a row for each class.
std::set<std::string> names_of_class_rows(Model& model) {
  std::set<const nn::Parameter*> of_classes;
  nn::Module* const last = model.units().back().modules.back();
  last->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (!name.ends_with("lora_A.weight")) of_classes.insert(&parameter);
  });
  const auto file_names = names_in_files(model);
  std::set<std::string> names;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (const auto found = file_names.find(name); found != file_names.end() && of_classes.contains(&parameter))
      names.insert(found->second);
  });
  each_adapted_layer(model, [&](const std::string& layer, nn::Linear& linear) {
    if (&linear == last) names.insert(kPrefix + Published(model).module(layer) + ".base_layer.weight");
  });
  return names;
}

}  // namespace

void load_adapter(Model& model, const TensorSource& source) {
  TensorSource trained = source;
  trained.tensor = [&source, of_classes = names_of_class_rows(model)](const std::string& name) {
    const at::Tensor theirs = source.tensor(name);
    return of_classes.contains(name) ? in_order_of_classes(theirs, source.class_rows) : theirs;
  };
  pass_over_weights_of_the_base(model, trained);
  std::map<std::string, at::Tensor> targets;
  for (auto& [name, tensor] : adapter_weights(model)) targets.emplace(name, tensor);
  load_tensors(targets, trained);
}

void merge_adapter(Model& model) {
  each_adapted_layer(model, [](const std::string&, nn::Linear& layer) {
    if (device::has_memory(layer.weight())) layer.merge_branch();
  });
}

}  // namespace gputrain::models

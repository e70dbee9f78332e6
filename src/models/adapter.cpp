#include "gputrain/models/adapter.hpp"

#include <map>
#include <set>

#include "adapters/targets.hpp"
#include "gputrain/nn/layers.hpp"

namespace gputrain::models {
namespace {

constexpr const char* kPrefix = "base_model.model.";  // of PEFT's wrappers round the model

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

std::vector<std::pair<std::string, at::Tensor>> adapter_weights(Model& model) {
  const Published published(model);
  std::map<std::string, std::string> file_names;  // of branches' parameters
  each_adapted_layer(model, [&](const std::string& layer, nn::Linear&) {
    for (const char* part : {".lora_A.weight", ".lora_B.weight"})
      file_names[layer + part] = published.module(layer) + part;
  });
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (!parameter.trainable) return;
    const auto found = file_names.find(name);
    tensors.emplace_back(kPrefix + (found != file_names.end() ? found->second : published.parameter(name)),
                         parameter.value.detach());
  });
  return tensors;
}

void load_adapter(Model& model, const TensorSource& source) {
  std::map<std::string, at::Tensor> targets;
  for (auto& [name, tensor] : adapter_weights(model)) targets.emplace(name, tensor);
  load_tensors(targets, source);
}

void merge_adapter(Model& model) {
  each_adapted_layer(model, [](const std::string&, nn::Linear& layer) { layer.merge_branch(); });
}

}  // namespace gputrain::models

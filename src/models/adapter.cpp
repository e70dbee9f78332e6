#include "gputrain/models/adapter.hpp"

#include <functional>
#include <map>
#include <set>
#include <string_view>

#include <ATen/ops/cat.h>
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

// Ends of names, ours and PEFT's.
constexpr const char *kA = ".lora_A.weight", *kB = ".lora_B.weight", *kMagnitude = ".lora_magnitude_vector";

using Visit = std::function<void(const std::string& layer, nn::Linear&)>;

bool has_memory(const nn::Linear& layer) { return device::has_memory(layer.frozen_matrix().parts.front()); }

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

void fit_branches(Model& model) {
  each_adapted_layer(model, [](const std::string&, nn::Linear& layer) {
    if (has_memory(layer)) layer.branch()->fit();
  });
}

bool starts_from_base(Model& model) {
  bool starts = false;
  each_adapted_layer(
      model, [&](const std::string&, nn::Linear& layer) { starts = starts || layer.branch()->starts_from_weight(); });
  return starts;
}

void find_starts(Model& model) {
  each_adapted_layer(model, [](const std::string&, nn::Linear& layer) {
    if (layer.branch()->starts_from_weight() && has_memory(layer)) layer.branch()->find_start();
  });
}

void start_branches(Model& model) {
  each_adapted_layer(model, [](const std::string&, nn::Linear& layer) {
    bool has_all = layer.branch()->starts_from_weight();
    layer.branch()->each_parameter([&](const std::string&, const nn::Parameter& parameter) {
      has_all = has_all && device::has_memory(parameter.value);
    });
    if (has_all) layer.branch()->start();
  });
}

std::vector<std::string> branch_tensors(Model& model) {
  std::vector<std::string> names;
  each_adapted_layer(model, [&](const std::string& layer, nn::Linear& linear) {
    const auto take = [&](const std::string& name, const auto&) { names.push_back(layer + "." + name); };
    linear.branch()->each_parameter(take);
    linear.branch()->each_buffer(take);
  });
  return names;
}

namespace {

/// A tensor of an adapter's file.
struct FilePart {
  std::string in_file;     // name
  std::string start = {};  // our name of the buffer that follows the trained values in `dim`; empty: none
  int64_t dim = 0;
};

/// Returns the tensors of files by our names of the trained values in them.
std::map<std::string, FilePart> file_parts(Model& model) {
  const Published published(model);
  std::map<std::string, FilePart> of_branches, parts;
  each_adapted_layer(model, [&](const std::string& layer, nn::Linear& linear) {
    const std::string in_file = published.module(layer);
    const auto start = [&](const char* name) { return linear.branch()->starts_from_weight() ? layer + name : ""; };
    of_branches[layer + kA] = {.in_file = in_file + kA, .start = start(".lora_A_start"), .dim = 0};
    of_branches[layer + kB] = {.in_file = in_file + kB, .start = start(".lora_B_start"), .dim = 1};
    of_branches[layer + kMagnitude] = {.in_file = in_file + kMagnitude};
  });
  model.each_parameter([&](const std::string& name, const nn::Parameter& parameter) {
    if (!parameter.trainable) return;
    const auto found = of_branches.find(name);
    FilePart& part = parts[name] = found != of_branches.end() ? found->second : FilePart{published.parameter(name)};
    part.in_file = kPrefix + part.in_file;
  });
  return parts;
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> adapter_weights(Model& model) {
  std::vector<std::pair<std::string, at::Tensor>> live;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (parameter.trainable) live.emplace_back(name, parameter.value.detach());
  });
  model.each_buffer([&](const std::string& name, nn::Buffer& buffer) { live.emplace_back(name, buffer.value); });
  return adapter_weights(model, live);
}

std::vector<std::pair<std::string, at::Tensor>> adapter_weights(
    Model& model, const std::vector<std::pair<std::string, at::Tensor>>& weights) {
  const auto parts = file_parts(model);
  const std::map<std::string, at::Tensor> by_name(weights.begin(), weights.end());
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, tensor] : weights) {
    const auto part = parts.find(name);
    if (part == parts.end()) continue;
    const auto& [in_file, start, dim] = part->second;
    tensors.emplace_back(in_file,
                         start.empty() ? tensor : at::cat({tensor, by_name.at(start).to(tensor.options())}, dim));
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
  const auto parts = file_parts(model);
  std::set<std::string> names;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (const auto found = parts.find(name); found != parts.end() && of_classes.contains(&parameter))
      names.insert(found->second.in_file);
  });
  each_adapted_layer(model, [&](const std::string& layer, nn::Linear& linear) {
    if (&linear == last) names.insert(kPrefix + Published(model).module(layer) + ".base_layer.weight");
  });
  return names;
}

}  // namespace

namespace {

/// Returns our tensors by names of files. Those of files that hold a start too become two there, the second with a name
/// of its own.
std::map<std::string, at::Tensor> targets_in(Model& model, TensorSource& source) {
  std::map<std::string, at::Tensor> ours, targets;
  model.each_parameter([&](const std::string& name, nn::Parameter& one) { ours[name] = one.value.detach(); });
  model.each_buffer([&](const std::string& name, nn::Buffer& one) { ours[name] = one.value; });
  std::map<std::string, FilePart> joined;  // by the name of either half
  for (const auto& [name, part] : file_parts(model)) {
    targets.emplace(part.in_file, ours.at(name));
    if (part.start.empty()) continue;
    targets.emplace(part.start, ours.at(part.start));
    joined[part.in_file] = joined[part.start] = part;
    if (std::ranges::find(source.names, part.in_file) != source.names.end()) source.names.push_back(part.start);
  }
  source.tensor = [read = source.tensor, joined = std::move(joined)](const std::string& name) {
    const auto found = joined.find(name);
    if (found == joined.end()) return read(name);
    const auto& [in_file, start, dim] = found->second;
    const at::Tensor both = read(in_file);
    const int64_t half = both.size(dim) / 2;
    return name == start ? both.narrow(dim, half, both.size(dim) - half) : both.narrow(dim, 0, half);
  };
  return targets;
}

}  // namespace

void load_adapter(Model& model, const TensorSource& source) {
  TensorSource trained = source;
  trained.tensor = [&source, of_classes = names_of_class_rows(model)](const std::string& name) {
    const at::Tensor theirs = source.tensor(name);
    return of_classes.contains(name) ? in_order_of_classes(theirs, source.class_rows) : theirs;
  };
  pass_over_weights_of_the_base(model, trained);
  load_tensors(targets_in(model, trained), trained);
}

void merge_adapter(Model& model) {
  each_adapted_layer(model, [](const std::string&, nn::Linear& layer) {
    if (device::has_memory(layer.weight())) layer.merge_branch();
  });
}

}  // namespace gputrain::models

#include "gputrain/models/packed_layers.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/sub.h>
#include <nlohmann/json.hpp>

#include "adapters/targets.hpp"
#include "gputrain/config/name_patterns.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/nn/experts.hpp"
#include "gputrain/nn/layers.hpp"

namespace gputrain::models {
namespace {

struct NamedLinear {
  std::string name;  // of its weight
  nn::Linear* layer;
};

/// Returns the dense layers of the model, without those of adapters.
std::vector<NamedLinear> dense_layers(Model& model) {
  std::vector<NamedLinear> layers;
  std::set<const nn::Module*> in_branches;
  model.each_module([&](const std::string& name, nn::Module& module) {
    if (auto* const branch = dynamic_cast<nn::Branch*>(&module))
      branch->each_module([&](const std::string&, nn::Module& part) { in_branches.insert(&part); });
    auto* const layer = dynamic_cast<nn::Linear*>(&module);
    if (layer != nullptr && !in_branches.contains(layer)) layers.push_back({name + ".weight", layer});
  });
  return layers;
}

/// Returns the layers that are never packed by choice: the head, and routers of experts.
std::vector<const nn::Module*> layers_left_out(Model& model) {
  std::vector<const nn::Module*> left_out;
  const auto take_all = [&](nn::Module& part) {
    part.each_module([&](const std::string&, nn::Module& module) { left_out.push_back(&module); });
  };
  take_all(*model.units().back().modules.back());
  model.each_module([&](const std::string&, nn::Module& module) {
    if (auto* const experts = dynamic_cast<nn::Experts*>(&module)) left_out.push_back(&experts->router());
  });
  return left_out;
}

/// Throws Error(usage) for a pattern that matches no dense layer.
void check_patterns(const PackRequest& request, const std::vector<NamedLinear>& layers) {
  for (const std::string& pattern : request.match) {
    const std::string_view plain = config::signed_pattern(pattern).pattern;
    const auto is_meant = [&](const NamedLinear& one) { return config::matches(plain, one.name); };
    if (std::ranges::any_of(layers, is_meant)) continue;
    throw Error(ExitCode::usage, {.what = "'" + std::string(plain) + "' matches the weight of no dense layer",
                                  .where = request.key + ".match",
                                  .hint = layers.empty() ? "" : "names are as '" + layers.back().name + "'"});
  }
}

/// Returns the names in the source by those of the model's parameters.
std::map<std::string, std::string> names_by_ours(const Model& model, const TensorSource& source) {
  const std::shared_ptr<const PublishedFamily> family = source.family ? source.family : family_of(model);
  std::map<std::string, std::string> names;
  for (const std::string& name : source.names) names.emplace(family ? family->parameter_of(model, name) : name, name);
  return names;
}

/// A layer, and how it is packed.
struct Choice {
  std::string name;  // of its weight
  nn::Linear* layer;
  std::shared_ptr<const nn::Packing> packing;
  at::ScalarType stored;
};

/// Chooses the layers as pack_layers() says.
std::vector<Choice> choose_layers(Model& model, const PackRequest& request, const TensorSource& source) {
  const TensorSource told = with_packed(source);
  const std::map<std::string, std::string> names = names_by_ours(model, told);
  const std::shared_ptr<const nn::Packing> packing = nn::packings().make(request.type);
  const std::vector<const nn::Module*> left_out = layers_left_out(model);
  const std::vector<NamedLinear> layers = dense_layers(model);
  check_patterns(request, layers);
  std::vector<Choice> choices;
  for (const auto& [name, layer] : layers) {
    const auto in_source = names.find(name);
    const auto found = in_source == names.end() ? told.packed.end() : told.packed.find(in_source->second);
    const bool is_trained = request.is_trained && layer->weight().requires_grad();
    if (found != told.packed.end()) {
      if (is_trained) {
        throw Error(ExitCode::usage,
                    {.what = "'" + name + "' is quantised in " + source.where + " and cannot be trained itself",
                     .where = request.key,
                     .hint = "train an adapter beside it: take it out of modules_to_save"});
      }
      choices.push_back({name, layer, found->second.packing, found->second.shape.stored});
      continue;
    }
    const bool is_chosen = std::ranges::find(left_out, layer) == left_out.end() &&
                           config::are_for(request.match, name, /*otherwise=*/request.match.empty());
    if (!told.packed.empty() || !is_chosen || is_trained) continue;
    const at::ScalarType stored =
        in_source == names.end() ? model.context().policy.compute : told.tensor(in_source->second).scalar_type();
    choices.push_back({name, layer, packing, stored});
  }
  return choices;
}

}  // namespace

void pack_layers(Model& model, const PackRequest& request, const TensorSource& source) {
  const std::vector<Choice> choices = choose_layers(model, request, source);
  for (const auto& [name, layer, packing, stored] : choices) layer->pack(packing, stored);
  if (!choices.empty()) return;
  throw Error(ExitCode::usage, {.what = "there is nothing to quantise: no dense layer is frozen" +
                                        std::string(request.match.empty() ? "" : " and matches"),
                                .where = request.key + (request.match.empty() ? "" : ".match"),
                                .hint = "leave it out"});
}

namespace {

using VisitPacked = std::function<void(const Choice& choice, const at::Tensor& matrix, const nn::Packed& packed)>;

/// Packs one layer after the other of a model whose weights are not packed, which it leaves as they are.
void each_packed(Model& model, const PackRequest& request, const TensorSource& source, const VisitPacked& visit) {
  const at::NoGradGuard no_grad;
  for (const Choice& choice : choose_layers(model, request, source)) {
    const at::Tensor matrix = choice.layer->matrix().to(choice.stored);
    const nn::PackedShape shape{.rows = matrix.size(0), .columns = matrix.size(1), .stored = choice.stored};
    const nn::Packed packed(choice.packing, shape, matrix.device());
    packed.fill(matrix);
    visit(choice, matrix, packed);
  }
}

}  // namespace

void each_packed_tensor(Model& model, const PackRequest& request, const TensorSource& source,
                        const std::function<void(const std::string& name, const at::Tensor& part)>& visit) {
  each_packed(model, request, source, [&](const Choice& choice, const at::Tensor&, const nn::Packed& packed) {
    const std::vector<std::string> suffixes = packed.suffixes();
    for (size_t i = 0; i < suffixes.size(); ++i) visit(choice.name + suffixes[i], packed.parts()[i]);
  });
}

PackingErrors round_layers(Model& model, const PackRequest& request, const TensorSource& source, bool keeps) {
  PackingErrors squares;
  const auto add = [](double& sum, const at::Tensor& matrix) {
    sum += matrix.to(at::kDouble).square().sum().item<double>();
  };
  each_packed(model, request, source, [&](const Choice& choice, const at::Tensor& matrix, const nn::Packed& packed) {
    const nn::Linear& layer = *choice.layer;
    const at::Tensor rounded = packed.matrix().in(at::kFloat);
    add(squares.weights, matrix);
    add(squares.rounding, rounded.sub(matrix));
    if (layer.has_branch()) add(squares.adapter, layer.branch()->matrix());
    if (keeps) layer.weight().detach().copy_(layer.is_in_out() ? rounded.t() : rounded);
  });
  return {.weights = std::sqrt(squares.weights),
          .rounding = std::sqrt(squares.rounding),
          .adapter = std::sqrt(squares.adapter)};
}

std::map<std::string, int64_t> weights_of_packed(Model& model) {
  std::map<std::string, int64_t> weights;
  for (const auto& [name, layer] : dense_layers(model)) {
    if (!layer->is_packed()) continue;
    const nn::PackedShape& shape = layer->packed().shape();
    for (const std::string& suffix : layer->packed().suffixes())
      weights[name + suffix] = suffix.empty() ? shape.rows * shape.columns : 0;
  }
  return weights;
}

nlohmann::json add_packed_tensors(Model& model, std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  const Published published(model);
  nlohmann::json config;
  std::vector<std::string> dense;  // without names, transformers leaves out the head that it finds, tied or not
  for (const auto& [name, layer] : dense_layers(model)) {
    const std::string in_file = published.parameter(name);
    if (!layer->is_packed()) {
      dense.push_back(in_file.substr(0, in_file.rfind('.')));
      continue;
    }
    const nn::Packed& packed = layer->packed();
    if (config.is_null()) config = packed.packing().quantization_config();
    for (auto& named : packed.packing().in_file(in_file, packed.shape(), packed.parts()))
      tensors.push_back(std::move(named));
  }
  if (!config.is_null() && !dense.empty()) {
    if (std::ranges::find(dense, "lm_head") == dense.end()) dense.emplace_back("lm_head");
    config["llm_int8_skip_modules"] = dense;
  }
  return config;
}

void unpack_layers(Model& model) {
  for (const auto& [name, layer] : dense_layers(model))
    if (layer->is_packed()) layer->unpack();
}

}  // namespace gputrain::models

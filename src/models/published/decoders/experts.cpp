#include "experts.hpp"

#include <algorithm>
#include <set>

namespace gputrain::models {
namespace {

constexpr const char* kLocalCount = "num_local_experts";

/// Returns the layers that `mlp_only_layers` names.
std::set<int64_t> dense_layers(const ConfigReader& reader) {
  const nlohmann::json* list = reader.find("mlp_only_layers");
  if (list == nullptr) return {};
  const auto is_number = [](const nlohmann::json& one) { return one.is_number_integer(); };
  if (!list->is_array() || !std::ranges::all_of(*list, is_number))
    reader.refuse("'mlp_only_layers' is no list of layer numbers");
  return list->get<std::set<int64_t>>();
}

void add_layers_with_experts(SpecOptions& options, const ConfigReader& reader) {
  const std::set<int64_t> dense = dense_layers(reader);
  const int64_t layers = reader.required_size("num_hidden_layers"),
                step = reader.size("decoder_sparse_step").value_or(1);
  std::vector<std::string> types;
  for (int64_t i = 0; i < layers; ++i)
    types.emplace_back(!dense.contains(i) && (i + 1) % step == 0 ? "sparse" : "dense");
  if (std::ranges::find(types, "dense") != types.end()) options.add("mlp_layer_types", types);
}

}  // namespace

void add_experts(SpecOptions& options, const ConfigReader& reader, const ExpertKeys& keys) {
  if (reader.number("router_jitter_noise", 0) != 0) {
    reader.refuse("'router_jitter_noise' other than 0 is not supported", "router_jitter_noise: 0");
  }
  options.add("n_expert", reader.find(keys.count) != nullptr ? reader.required_size(keys.count)
                                                             : reader.required_size(kLocalCount));
  options.add("experts_per_token", reader.required_size("num_experts_per_tok"));
  options.add("expert_inner", reader.required_size(keys.inner));
  options.add("router_aux_loss_coef", reader.number("router_aux_loss_coef", GptSpec().router_aux_loss_coef));
  if (keys.scales_to_one != nullptr) options.add("norm_expert_weights", reader.flag(keys.scales_to_one, false));
  if (keys.has_dense_layers) add_layers_with_experts(options, reader);
}

nlohmann::json experts_config(const GptSpec& spec, const GptSizes& sizes, const ExpertKeys& keys) {
  nlohmann::json config{{keys.count, spec.n_expert},
                        {"num_experts_per_tok", spec.experts_per_token},
                        {keys.inner, sizes.expert_inner},
                        {"router_aux_loss_coef", spec.router_aux_loss_coef},
                        {"output_router_logits", false}};
  if (keys.scales_to_one != nullptr) config[keys.scales_to_one] = spec.norm_expert_weights;
  if (!keys.has_dense_layers) return config;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = nlohmann::json::array();
  for (size_t i = 0; i < sizes.sparse.size(); ++i)
    if (!sizes.sparse[i]) config["mlp_only_layers"].push_back(i);
  return config;
}

bool has_experts_of(const ExpertKeys& keys, const GptSpec& spec, const GptSizes& sizes) {
  const bool are_all_sparse = std::ranges::find(sizes.sparse, false) == sizes.sparse.end();
  return (keys.has_dense_layers || are_all_sparse) && (keys.scales_to_one != nullptr || spec.norm_expert_weights);
}

}  // namespace gputrain::models

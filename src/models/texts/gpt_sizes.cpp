#include <algorithm>
#include <cmath>

#include "gpt_options.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/models/class_names.hpp"
#include "gputrain/models/spec_checks.hpp"

namespace gputrain::models {

bool is_gated(const GptSpec& spec) { return spec.activation == "swiglu" || spec.activation == "geglu_tanh"; }

nn::Naming naming_of(const GptSpec& spec) {
  if (spec.layout == "phi3") return nn::Naming::phi3;
  if (spec.layout == "gpt_neox") return nn::Naming::gpt_neox;
  const bool is_llama = spec.position == "rotary" && spec.norm.starts_with("rmsnorm") && is_gated(spec);
  return spec.layout.value_or(is_llama ? "llama" : "gpt2") == "llama" ? nn::Naming::llama : nn::Naming::gpt2;
}

int64_t rotary_channels_of(const GptSpec& spec) {
  const int64_t channels = spec.head_dim.value_or(spec.n_embd / spec.n_head);
  return static_cast<int64_t>(static_cast<double>(channels) * spec.partial_rotary_factor);
}

namespace {

[[noreturn]] void refuse(const char* key, std::string what, std::string hint) {
  throw Error(ExitCode::usage,
              {.what = std::move(what), .where = std::string("model.config.") + key, .hint = std::move(hint)});
}

std::vector<bool> sparse_layers_of(const GptSpec& spec) {
  std::vector<bool> sparse(static_cast<size_t>(spec.n_layer), spec.n_expert > 0);
  const auto& types = spec.mlp_layer_types;
  for (size_t i = 0; i < sparse.size() && !types.empty(); ++i) sparse[i] = types[i % types.size()] == kSparse;
  return sparse;
}

NormPlaces norm_places_of(const GptSpec& spec) {
  return spec.norms == "both" ? NormPlaces::both : spec.norms == "after" ? NormPlaces::after : NormPlaces::before;
}

ops::Activation activation_of(const GptSpec& spec) {
  if (!is_gated(spec)) return ops::activation_from_name(spec.activation);
  return spec.activation == "swiglu" ? ops::Activation::silu : ops::Activation::gelu_tanh;
}

ops::RotaryScaling rotary_scaling_of(const RopeScalingSpec& spec, int64_t positions) {
  using Kind = ops::RotaryScaling::Kind;
  ops::RotaryScaling scaling{
      .factor = spec.factor,
      .low_turns = spec.low_freq_factor,
      .high_turns = spec.high_freq_factor,
      .original_positions = static_cast<double>(spec.original_max_position_embeddings.value_or(positions))};
  if (spec.type == "linear") scaling.kind = Kind::linear;
  if (spec.type == "llama3") scaling.kind = Kind::llama3;
  if (spec.type != "yarn") return scaling;
  scaling.kind = Kind::yarn;
  scaling.low_turns = spec.beta_slow;
  scaling.high_turns = spec.beta_fast;
  scaling.whole_channels = spec.truncate;
  scaling.growth = spec.attention_factor.value_or(spec.factor > 1 ? 0.1 * std::log(spec.factor) + 1 : 1);
  return scaling;
}

int64_t default_inner(const GptSizes& sizes) {
  if (!sizes.gated) return 4 * sizes.channels;
  // Two thirds of 4 x channels, as there are three matrices and not two (arXiv:2002.05202), as a multiple of 64.
  return (8 * sizes.channels / 3 + 63) / 64 * 64;
}

}  // namespace

GptSizes sizes_of(const GptSpec& spec, const DataFacts& facts) {
  if (facts.input_shape.size() != 1) {
    throw Error(ExitCode::usage, {.what = "gpt needs tokens, but the data has samples of " +
                                          std::to_string(facts.input_shape.size()) + " dims",
                                  .where = "model.type",
                                  .hint = "use convnet or resnet18 for images"});
  }
  GptSizes sizes{};
  sizes.layers = spec.n_layer;
  sizes.heads = spec.n_head;
  sizes.key_heads = spec.n_kv_head.value_or(spec.n_head);
  sizes.channels = spec.n_embd;
  sizes.head_channels = spec.head_dim.value_or(spec.n_embd / spec.n_head);
  sizes.positions = spec.block_size.value_or(std::max(facts.input_shape[0], facts.longest_text));
  sizes.vocabulary = classes_of(
      spec.vocab_size, {.num_classes = facts.vocabulary > 0 ? facts.vocabulary : facts.num_classes}, "vocab_size");
  // If the data has no classes, the model gives one number: a reward.
  if (spec.head == "classifier")
    sizes.classes = facts.num_classes > 0 ? classes_of(spec.num_classes, facts) : spec.num_classes.value_or(1);
  sizes.labels = names_of_rows(sizes.classes, facts.class_names, spec.labels);
  sizes.rotary = spec.position == "rotary";
  sizes.rmsnorm = spec.norm.starts_with("rmsnorm");
  sizes.norms_from_one = spec.norm == "rmsnorm_1p";
  sizes.norm_places = norm_places_of(spec);
  sizes.gated = is_gated(spec);
  sizes.activation = activation_of(spec);
  if (spec.query_pre_attn_scalar) sizes.attention_scale = 1 / std::sqrt(*spec.query_pre_attn_scalar);
  sizes.bias = spec.bias.value_or(!sizes.rmsnorm);
  sizes.qkv_bias = spec.qkv_bias.value_or(sizes.bias);
  sizes.inner = spec.n_inner.value_or(default_inner(sizes));
  sizes.expert_inner = spec.expert_inner.value_or(sizes.inner);
  sizes.sparse = sparse_layers_of(spec);
  sizes.windows = windows_of(spec.n_layer, spec.window, spec.layer_types);
  sizes.rotary_scaling = rotary_scaling_of(spec.rope_scaling, sizes.positions);
  sizes.rotary_channels = rotary_channels_of(spec);
  sizes.naming = naming_of(spec);

  if (facts.input_shape[0] > sizes.positions) {
    refuse("block_size",
           "samples have " + std::to_string(facts.input_shape[0]) + " tokens, block_size is " +
               std::to_string(sizes.positions),
           "block_size: " + std::to_string(facts.input_shape[0]));
  }
  if (spec.pad_vocab_to > 0 && spec.pad_vocab_to < sizes.vocabulary) {
    refuse("pad_vocab_to",
           "pad_vocab_to (" + std::to_string(spec.pad_vocab_to) + ") is less than the vocabulary (" +
               std::to_string(sizes.vocabulary) + ")",
           "pad_vocab_to: " + std::to_string((sizes.vocabulary + 63) / 64 * 64) + ", or leave it out");
  }
  return sizes;
}

}  // namespace gputrain::models

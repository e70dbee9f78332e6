#include <algorithm>

#include "gpt_options.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/models/class_names.hpp"
#include "gputrain/models/spec_checks.hpp"

namespace gputrain::models {
namespace {

constexpr const char* kLlamasLayout = "position: rotary, norm: rmsnorm, activation: swiglu";

void check_layout(const GptSpec& spec, config::SpecIssues& issues) {
  const nn::Naming naming = naming_of(spec);
  if (spec.qk_norm && naming != nn::Naming::llama) {
    issues.add("qk_norm", "is there in Llama's layout alone", kLlamasLayout);
  }
  if (spec.qk_norm_across_heads && !spec.qk_norm) {
    issues.add("qk_norm_across_heads", "is a kind of qk_norm", "qk_norm: true, or leave it out");
  }
  if (spec.norms != "before" && naming == nn::Naming::gpt2) {
    issues.add("norms", "other than before is not there in GPT-2's layout", kLlamasLayout);
  }
  if (naming != nn::Naming::gpt2 && spec.position != "rotary") {
    issues.add("layout", *spec.layout + " has no learned positions", "position: rotary");
  }
  if (naming == nn::Naming::phi3 && !is_gated(spec)) {
    issues.add("layout", "phi3 has a gate in its feed-forward layers", "activation: swiglu");
  }
}

void check_neox(const GptSpec& spec, config::SpecIssues& issues) {
  if (naming_of(spec) != nn::Naming::gpt_neox) return;
  if (is_gated(spec)) issues.add("layout", "gpt_neox has no gate in its feed-forward layers", "activation: gelu");
  if (spec.n_kv_head.value_or(spec.n_head) != spec.n_head) {
    issues.add("n_kv_head", "gpt_neox has a key for each head", "leave it out");
  }
}

void check_rotary_channels(const GptSpec& spec, config::SpecIssues& issues) {
  const bool is_partial = spec.partial_rotary_factor != 1;
  if (spec.position != "rotary") {
    if (is_partial) issues.add("partial_rotary_factor", "is of rotary positions", "position: rotary, or leave it out");
    return;
  }
  const int64_t channels = rotary_channels_of(spec);
  if (!spec.head_dim && spec.n_embd % spec.n_head != 0) return;  // reported already
  if (channels > 0 && channels % 2 == 0) return;
  const std::string what = "rotary positions rotate pairs of channels, but " + std::to_string(channels);
  if (is_partial) return issues.add("partial_rotary_factor", what + " are no pairs", "for instance 0.5, or 1");
  if (spec.head_dim) {
    return issues.add("head_dim", what + " is odd", "for instance head_dim: " + std::to_string(channels + 1));
  }
  issues.add("n_embd", what + " per head is odd",
             "for instance n_embd: " + std::to_string((channels + 1) * spec.n_head) + ", or position: learned");
}

void check_heads(const GptSpec& spec, config::SpecIssues& issues) {
  if (!spec.head_dim) check_division(issues, "n_embd", "n_embd", spec.n_embd, "n_head", spec.n_head);
  if (spec.n_kv_head) check_division(issues, "n_kv_head", "n_head", spec.n_head, "n_kv_head", *spec.n_kv_head);
  check_rotary_channels(spec, issues);
}

void check_rope_scaling(const GptSpec& spec, config::SpecIssues& issues) {
  if (spec.rope_scaling.type == "yarn" && spec.rope_theta <= 1) {
    issues.add("rope_theta", "yarn needs a base above 1", "for instance rope_theta: 10000");
  }
  if (spec.rope_scaling.type == "none" || spec.position == "rotary") return;
  issues.add("rope_scaling.type", "rope_scaling changes rotary positions, but position is " + spec.position,
             "position: rotary, or leave it out");
}

void check_window(const GptSpec& spec, config::SpecIssues& issues) {
  if (spec.rope_local_theta && (!spec.window || spec.position != "rotary")) {
    issues.add("rope_local_theta", "is of rotary positions in layers with a window", "leave it out, or give window");
  }
  check_layer_types(spec.n_layer, spec.window, spec.layer_types, issues);
}

void check_experts(const GptSpec& spec, config::SpecIssues& issues) {
  const auto& types = spec.mlp_layer_types;
  const bool has_sparse = std::ranges::find(types, kSparse) != types.end();
  if (spec.n_expert == 0) {
    if (has_sparse)
      issues.add("mlp_layer_types", std::string(kSparse) + " layers need experts", "for instance n_expert: 8");
    return;
  }
  if (!types.empty() && !has_sparse) {
    issues.add("mlp_layer_types", "none of these layers has experts",
               "leave out n_expert, or add " + std::string(kSparse));
  }
  if (spec.experts_per_token > spec.n_expert) {
    issues.add("experts_per_token",
               std::to_string(spec.experts_per_token) + " of " + counted(spec.n_expert, "expert") + " are not there",
               "at most " + std::to_string(spec.n_expert));
  }
  if (std::ssize(types) > spec.n_layer) {
    issues.add("mlp_layer_types",
               "names " + counted(std::ssize(types), "layer") + ", but n_layer is " + std::to_string(spec.n_layer),
               "a shorter list is repeated");
  }
  if (naming_of(spec) != nn::Naming::llama || spec.bias.value_or(false))
    issues.add("n_expert", "experts are there in Llama's layout without biases alone", kLlamasLayout);
}

}  // namespace

void RopeScalingSpec::describe(config::Description<RopeScalingSpec>& d) {
  d.summary("slower rotary angles, with which weights understand longer texts than they were first trained on");
  d.key("type", &RopeScalingSpec::type, "linear divides all frequencies; llama3, of Llama 3.1, and yarn the low ones")
      .choices({"none", "linear", "llama3", "yarn"})
      .aliases({"rope_type"});
  d.key("factor", &RopeScalingSpec::factor, "what frequencies are divided by").above(0);
  d.key("low_freq_factor", &RopeScalingSpec::low_freq_factor,
        "llama3: divided are frequencies of at most so many turns over the original length")
      .above(0);
  d.key("high_freq_factor", &RopeScalingSpec::high_freq_factor,
        "llama3: kept are frequencies of at least so many turns; between them it goes over")
      .above(0);
  d.key("original_max_position_embeddings", &RopeScalingSpec::original_max_position_embeddings,
        "llama3 and yarn: longest sequence of the first training; null: block_size")
      .range(1, kMostRows)
      .unit("tokens");
  d.key("beta_fast", &RopeScalingSpec::beta_fast, "yarn: as high_freq_factor").above(0);
  d.key("beta_slow", &RopeScalingSpec::beta_slow, "yarn: as low_freq_factor").above(0);
  d.key("truncate", &RopeScalingSpec::truncate, "yarn: it goes over between whole channels");
  d.key("attention_factor", &RopeScalingSpec::attention_factor,
        "yarn: rotated queries and keys are multiplied by it; null: 0.1 ln(factor) + 1")
      .above(0);
  d.check([](const RopeScalingSpec& spec, config::SpecIssues& issues) {
    if (spec.high_freq_factor <= spec.low_freq_factor) {
      issues.add("high_freq_factor", "must be above low_freq_factor", "Llama 3.1 has 1 and 4");
    }
    if (spec.beta_fast <= spec.beta_slow) issues.add("beta_fast", "must be above beta_slow", "YaRN has 32 and 1");
  });
}

void GptSpec::describe(config::Description<GptSpec>& d) {
  d.summary(
      "A decoder-only transformer. The defaults are GPT-2's smallest; Llama is position: rotary, norm: rmsnorm, "
      "activation: swiglu.");
  d.key("n_layer", &GptSpec::n_layer, "blocks").range(1, kMostLayers).aliases({"num_hidden_layers", "num_layers"});
  d.key("n_head", &GptSpec::n_head, "attention heads")
      .range(1, kMostChannels)
      .aliases({"num_attention_heads", "num_heads"});
  d.key("n_kv_head", &GptSpec::n_kv_head, "heads of keys and values; null: n_head")
      .range(1, kMostChannels)
      .aliases({"num_key_value_heads"});
  d.key("n_embd", &GptSpec::n_embd, "channels")
      .range(1, kMostChannels)
      .aliases({"hidden_size", "d_model", "embed_dim"});
  d.key("head_dim", &GptSpec::head_dim, "channels of each head; null: n_embd / n_head").range(1, kMostChannels);
  d.key("n_inner", &GptSpec::n_inner, "channels inside the feed-forward layers; null: 4 n_embd, or 8/3 of it if gated")
      .range(1, kMostRows)
      .aliases({"intermediate_size"});
  d.key("n_expert", &GptSpec::n_expert,
        "feed-forward layers in each block, of which a token uses a few, as in Mixtral; 0: one that all tokens use")
      .range(0, kMostChannels)
      .aliases({"num_experts", "num_local_experts"});
  d.key("experts_per_token", &GptSpec::experts_per_token, "experts that each token uses, of n_expert")
      .range(1, kMostChannels)
      .aliases({"num_experts_per_tok"});
  d.key("expert_inner", &GptSpec::expert_inner, "channels inside each expert; null: n_inner")
      .range(1, kMostRows)
      .aliases({"moe_intermediate_size"});
  d.key("norm_expert_weights", &GptSpec::norm_expert_weights, "the weights of a token's experts have the sum 1")
      .aliases({"norm_topk_prob"});
  d.key("router_aux_loss_coef", &GptSpec::router_aux_loss_coef,
        "weight of the loss that spreads tokens evenly over experts, added where the next token is learned; 0: none")
      .at_least(0);
  d.key("router_z_loss_coef", &GptSpec::router_z_loss_coef,
        "weight of the loss that keeps the router's logits small, added where the next token is learned; 0: none")
      .at_least(0);
  d.key("mlp_layer_types", &GptSpec::mlp_layer_types,
        "which layers have experts, repeated up to n_layer: the sparse ones. []: all")
      .choices({kSparse, "dense"});
  d.key("block_size", &GptSpec::block_size, "longest sequence; null: the data's")
      .range(1, kMostRows)
      .unit("tokens")
      .aliases({"n_positions", "max_position_embeddings", "n_ctx", "context_length"});
  d.key("vocab_size", &GptSpec::vocab_size, "size of the vocabulary; null: the data's").range(1, kMostRows);
  d.key("pad_vocab_to", &GptSpec::pad_vocab_to,
        "compute this many logits, a multiple of 64 for speed; those past vocab_size are ignored")
      .range(0, kMostRows);
  d.key("dropout", &GptSpec::dropout, "probability on embeddings, attention weights and each addition to the stream")
      .range(0, 0.999)
      .aliases({"embd_pdrop", "attn_pdrop", "resid_pdrop"});
  d.key("neftune_alpha", &GptSpec::neftune_alpha,
        "NEFTune (arXiv:2310.05914): noise on token embeddings in training, uniform, at most neftune_alpha / root of "
        "(tokens of a row x n_embd); 0: none")
      .at_least(0)
      .aliases({"neftune_noise_alpha", "noisy_embedding_alpha"});
  d.key("window", &GptSpec::window, "a token attends to itself and those before it, at most so many; null: to all")
      .range(1, kMostRows)
      .unit("tokens")
      .aliases({"sliding_window"});
  d.key("layer_types", &GptSpec::layer_types,
        "the kind of each layer, repeated up to n_layer; those with sliding_attention have the window. []: all have it")
      .choices({kSlidingAttention, "full_attention"});
  d.key("query_pre_attn_scalar", &GptSpec::query_pre_attn_scalar, "attention divides by the root of it; null: head_dim")
      .above(0);
  d.key("bias", &GptSpec::bias, "biases in dense layers and LayerNorm; null: true with layernorm, else false")
      .aliases({"attention_bias"});
  d.key("qkv_bias", &GptSpec::qkv_bias, "biases in the layers of queries, keys and values; null: as bias");
  d.key("qk_norm", &GptSpec::qk_norm, "RMSNorm of each head's query and key, as in Qwen3; in Llama's layout");
  d.key("qk_norm_across_heads", &GptSpec::qk_norm_across_heads, "qk_norm over all heads together, as in OLMo 2");
  d.key("layout", &GptSpec::layout,
        "whose names and order parameters have; null: llama with rotary positions, rmsnorm and a gate, else gpt2")
      .choices({"gpt2", "llama", "phi3", "gpt_neox"});
  d.key("head", &GptSpec::head,
        "what it gives: the next token, or classes of each text, from its last token; one class is a number, as a "
        "reward")
      .choices({"tokens", "classifier"});
  d.key("num_classes", &GptSpec::num_classes, "classes of a classifier; null: the data's, or 1")
      .range(1, 1 << 20)
      .aliases({"num_labels"});
  d.key("labels", &GptSpec::labels, kLabelsHelp);
  d.key("position", &GptSpec::position, "encoding of positions").choices({"learned", "rotary"});
  d.key("norm", &GptSpec::norm, "normalisation; rmsnorm_1p, Gemma's, multiplies by 1 + weight")
      .choices({"layernorm", "rmsnorm", "rmsnorm_1p"});
  d.key("norms", &GptSpec::norms,
        "where they are: before attention and feed-forward layers, after, or both as in Gemma 3")
      .choices({"before", "after", "both"});
  d.key("parallel_residual", &GptSpec::parallel_residual,
        "feed-forward layers read what attention reads, as in GPT-NeoX, not what it leaves")
      .aliases({"use_parallel_residual"});
  d.key("activation", &GptSpec::activation,
        "inside the feed-forward layers; gelu_tanh is GPT-2's; gated are Llama's swiglu and Gemma's geglu_tanh")
      .choices({"gelu_tanh", "gelu", "relu", "silu", "swiglu", "geglu_tanh"})
      .aliases({"activation_function", "hidden_act", "hidden_activation"});
  d.key("tie_embeddings", &GptSpec::tie_embeddings, "one matrix for the embedding and the head")
      .aliases({"tie_word_embeddings"});
  d.key("scale_embeddings", &GptSpec::scale_embeddings, "multiplies token embeddings by the root of n_embd, as Gemma");
  d.key("rope_theta", &GptSpec::rope_theta, "base of the rotary angles").above(0);
  d.key("rope_local_theta", &GptSpec::rope_local_theta,
        "their base in layers with a window, where rope_scaling then does not count; null: as in the others")
      .above(0)
      .aliases({"rope_local_base_freq"});
  d.key("partial_rotary_factor", &GptSpec::partial_rotary_factor, "the part of each head's channels that is rotated")
      .range(0, 1)
      .above(0)
      .aliases({"rotary_pct"});
  d.key("rope_scaling", &GptSpec::rope_scaling, "rotary angles for longer texts");
  d.key("norm_eps", &GptSpec::norm_eps, "added to the variance in normalisations")
      .above(0)
      .aliases({"layer_norm_epsilon", "rms_norm_eps"});
  d.check([](const GptSpec& spec, config::SpecIssues& issues) {
    check_heads(spec, issues);
    check_layout(spec, issues);
    check_neox(spec, issues);
    check_rope_scaling(spec, issues);
    check_window(spec, issues);
    check_experts(spec, issues);
    if (spec.num_classes && spec.head != "classifier")
      issues.add("num_classes", "is of a classifier", "head: classifier, or leave it out");
  });
}

}  // namespace gputrain::models

#include "decoder.hpp"

namespace gputrain::models {

void add_sizes(SpecOptions& options, const ConfigReader& reader) {
  const int64_t channels = reader.required_size("hidden_size"), heads = reader.required_size("num_attention_heads");
  const auto head_dim = reader.size("head_dim");
  if (!head_dim && channels % heads != 0)
    reader.refuse("'hidden_size' is no multiple of 'num_attention_heads', and 'head_dim' is missing");
  options.add("n_layer", reader.required_size("num_hidden_layers"));
  options.add("n_head", heads);
  options.add("n_kv_head", reader.size("num_key_value_heads").value_or(heads));
  options.add("n_embd", channels);
  if (head_dim && *head_dim * heads != channels) options.add("head_dim", *head_dim);
  options.add("n_inner", reader.required_size("intermediate_size"));
  options.add("block_size", reader.size("max_position_embeddings").value_or(2048));
  options.add("vocab_size", reader.required_size("vocab_size"));
}

nlohmann::json sizes_config(const GptSizes& sizes, const char* model_type, const char* architecture) {
  return {{"architectures", {architecture}},
          {"model_type", model_type},
          {"max_position_embeddings", sizes.positions},
          {"hidden_size", sizes.channels},
          {"intermediate_size", sizes.inner},
          {"num_hidden_layers", sizes.layers},
          {"num_attention_heads", sizes.heads},
          {"num_key_value_heads", sizes.key_heads},
          {"head_dim", sizes.head_channels}};
}

std::string llama_parameter_of(const Model& model, const std::string& file_name) {
  if (file_name.ends_with(".rotary_emb.inv_freq")) return {};
  // Files of the bare transformer have no prefix.
  for (const char* start : {"embed_tokens.", "layers.", "norm."}) {
    if (file_name.starts_with(start)) return "model." + file_name;
  }
  const auto& gpt = dynamic_cast<const Gpt&>(model);
  if (file_name != "lm_head.weight") return file_name;
  if (gpt.sizes().classes > 0) return {};
  return gpt.spec().tie_embeddings ? "model.embed_tokens.weight" : file_name;
}

}  // namespace gputrain::models

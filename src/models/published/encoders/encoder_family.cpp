#include "encoder_family.hpp"

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "../../texts/encoder_names.hpp"
#include "../activations.hpp"

namespace gputrain::models {
namespace {

constexpr std::array<std::pair<HeadKind, const char*>, 4> kHeads{{{HeadKind::mlm, "mlm"},
                                                                  {HeadKind::classifier, "classifier"},
                                                                  {HeadKind::tagger, "tagger"},
                                                                  {HeadKind::embedder, "embedder"}}};

const char* architecture_end(HeadKind head) {
  switch (head) {
    case HeadKind::mlm:
      return "ForMaskedLM";
    case HeadKind::classifier:
      return "ForSequenceClassification";
    case HeadKind::tagger:
      return "ForTokenClassification";
    case HeadKind::embedder:
      break;
  }
  return "Model";
}

/// Adds the head that the first of `architectures` has; none if we do not know it.
void add_head(SpecOptions& defaults, const ConfigReader& reader, const std::string& architecture) {
  const nlohmann::json* names = reader.find("architectures");
  if (names == nullptr || !names->is_array() || names->empty() || !names->front().is_string()) return;
  const auto name = names->front().get<std::string>();
  if (name == architecture + "ForPreTraining") defaults.add("head", "mlm");
  for (const auto& [head, ours] : kHeads) {
    if (name == architecture + architecture_end(head)) defaults.add("head", ours);
  }
}

bool has_prefix(const std::string& name, const char* module) {
  return module != nullptr && name.starts_with(std::string(module) + ".");
}

/// Returns whether a name of a file belongs to a head, whichever it is.
bool is_of_a_head(const std::string& name, const EncoderVariant& variant) {
  for (const auto& [head, ours] : kHeads) {
    const HeadNames names = head_names_of(variant, head);
    for (const char* module : {names.dense, names.norm, names.classes}) {
      if (has_prefix(name, module)) return true;
    }
  }
  return name.starts_with(std::string(variant.root) + "pooler.") || has_prefix(name, "cls.seq_relationship") ||
         has_prefix(name, "qa_outputs");
}

/// Returns whether it is a parameter of the head that the model has.
bool is_of_its_head(const std::string& name, const EncoderSizes& sizes) {
  const HeadNames names = head_names_of(*sizes.variant, sizes.head);
  for (const char* module : {names.dense, names.norm, names.classes}) {
    if (module != nullptr && (name == std::string(module) + ".weight" || name == std::string(module) + ".bias"))
      return true;
  }
  return false;
}

/// Returns the name in a file as newer versions of transformers write it, with the root that bare encoders' files lack.
std::string current_name(std::string name, const EncoderVariant& variant) {
  constexpr std::array<std::pair<std::string_view, const char*>, 2> kOldEnds{
      {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}}};
  for (const auto& [old, now] : kOldEnds) {
    if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), now);
  }
  const std::string_view blocks = std::string_view(variant.blocks).substr(std::string_view(variant.root).size());
  for (const std::string_view start :
       {std::string_view("embeddings."), std::string_view("pooler."), std::string_view("final_norm."), blocks}) {
    if (name.starts_with(start)) return variant.root + name;
  }
  return name;
}

}  // namespace

PublishedModel EncoderFamily::model_of(const nlohmann::json& config, const std::string& where) const {
  const ConfigReader reader(config, where);
  reader.expect_flag("is_decoder", false);
  reader.expect_flag("add_cross_attention", false);
  reader.expect_flag("tie_word_embeddings", true);
  if (reader.text("position_embedding_type", "absolute") != "absolute" &&
      encoder_variant(kind_.name).positions != nullptr)
    reader.refuse("'position_embedding_type' other than absolute is not supported");
  EncoderOptions options;
  options.fixed.add("variant", kind_.name);
  options.fixed.add("vocab_size", reader.required_size("vocab_size"));
  kind_.read(options, reader);
  add_head(options.defaults, reader, kind_.architecture);
  add_labels(options.defaults, config);
  return {.type = "bert",
          .options = options.fixed.list,
          .defaults = options.defaults.list,
          .vectors = {{"head", "embedder"}}};
}

bool EncoderFamily::names(const Model& model) const {
  const auto* encoder = dynamic_cast<const Encoder*>(&model);
  return encoder != nullptr && encoder->sizes().variant == &encoder_variant(kind_.name);
}

nlohmann::json EncoderFamily::config_of(const Model& model) const {
  const EncoderSizes& sizes = dynamic_cast<const Encoder&>(model).sizes();
  nlohmann::json config = kind_.write(sizes);
  if (config.is_null()) return config;
  config["architectures"] = {std::string(kind_.architecture) + architecture_end(sizes.head)};
  config["model_type"] = kind_.model_type;
  config["vocab_size"] = sizes.vocabulary;
  config["tie_word_embeddings"] = true;
  if (sizes.head == HeadKind::classifier || sizes.head == HeadKind::tagger)
    note_labels(config, sizes.classes, sizes.labels);
  // Only the tokenizer knows which tokens begin, end and pad a text; a reader's defaults would be wrong.
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (!config.contains(key)) config[key] = nullptr;
  }
  return config;
}

std::string EncoderFamily::parameter_of(const Model& model, const std::string& file_name) const {
  const EncoderSizes& sizes = dynamic_cast<const Encoder&>(model).sizes();
  const EncoderVariant& names = *sizes.variant;
  const std::string name = current_name(file_name, names), vocabulary = names.mlm_bias, decoder = names.mlm_weight;
  // Older files store numbers of positions and types like weights.
  for (const char* end : {"embeddings.position_ids", "embeddings.token_type_ids"}) {
    if (name == names.root + std::string(end)) return {};
  }
  if (name == decoder + ".weight") return sizes.head == HeadKind::mlm ? names.tokens + std::string(".weight") : "";
  if (name == decoder + ".bias") return sizes.head == HeadKind::mlm ? vocabulary + ".bias" : "";
  return is_of_a_head(name, names) && !is_of_its_head(name, sizes) ? "" : name;
}

std::string EncoderFamily::file_name_of(const Model& model, const std::string& parameter) const {
  const EncoderSizes& sizes = dynamic_cast<const Encoder&>(model).sizes();
  const std::string root = sizes.variant->root;
  const bool is_bare = sizes.head == HeadKind::embedder;
  return is_bare && parameter.starts_with(root) ? parameter.substr(root.size()) : parameter;
}

void read_bert_keys(EncoderOptions& options, const ConfigReader& reader) {
  auto& [fixed, defaults] = options;
  fixed.add("n_layer", reader.required_size("num_hidden_layers"));
  fixed.add("n_head", reader.required_size("num_attention_heads"));
  fixed.add("n_embd", reader.required_size("hidden_size"));
  fixed.add("n_inner", reader.required_size("intermediate_size"));
  fixed.add("type_vocab_size", reader.size("type_vocab_size").value_or(2));
  fixed.add("activation", activation_option(reader, "hidden_act", "gelu"));
  fixed.add("norm_eps", reader.number("layer_norm_eps", 1e-12));
  defaults.add("dropout", reader.number("hidden_dropout_prob", 0.1));
  defaults.add("attention_dropout", reader.number("attention_probs_dropout_prob", 0.1));
  if (reader.find("classifier_dropout") != nullptr)
    defaults.add("head_dropout", reader.number("classifier_dropout", 0.1));
}

nlohmann::json bert_keys(const EncoderSizes& sizes) {
  return {{"hidden_size", sizes.channels},
          {"num_hidden_layers", sizes.layers},
          {"num_attention_heads", sizes.heads},
          {"intermediate_size", sizes.inner},
          {"hidden_act", activation_function(sizes.activation)},
          {"layer_norm_eps", sizes.norm_eps},
          {"type_vocab_size", sizes.token_types},
          {"max_position_embeddings", sizes.position_offset + sizes.positions},
          {"hidden_dropout_prob", sizes.dropout},
          {"attention_probs_dropout_prob", sizes.attention_dropout},
          {"classifier_dropout", sizes.head_dropout}};
}

}  // namespace gputrain::models

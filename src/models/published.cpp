#include "gputrain/models/published.hpp"

#include <functional>

#include "gputrain/core/error.hpp"
#include "published/config_json.hpp"

namespace gputrain::models {
namespace {

std::unique_ptr<const PublishedFamily> first_family(const std::function<bool(const PublishedFamily&)>& is_wanted) {
  for (const std::string& name : families().names()) {
    std::unique_ptr<const PublishedFamily> family = families().make(families().with_defaults(name));
    if (is_wanted(*family)) return family;
  }
  return nullptr;
}

/// "gpt2 and llama", "gpt2, llama and qwen2".
std::string known_families() {
  const auto names = families().names();
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + names[i];
  return text;
}

constexpr const char* kClassifies = "ForSequenceClassification";  // the end of such an architecture's name

bool classifies(const nlohmann::json& config) {
  const auto architectures = config.find("architectures");
  if (architectures == config.end() || !architectures->is_array() || architectures->empty()) return false;
  const nlohmann::json& first = architectures->front();
  return first.is_string() && first.get_ref<const std::string&>().ends_with(kClassifies);
}

}  // namespace

FamilyCatalog& families() {
  static FamilyCatalog catalog("family");
  return catalog;
}

PublishedFamily::~PublishedFamily() = default;

std::string PublishedFamily::parameter_of(const Model&, const std::string& file_name) const { return file_name; }

std::string PublishedFamily::file_name_of(const Model&, const std::string& parameter) const { return parameter; }

at::Tensor PublishedFamily::fitted(const Model&, const std::string&, const at::Tensor& theirs) const { return theirs; }

std::unique_ptr<const PublishedFamily> family_meant_by(const nlohmann::json& config) {
  return first_family([&](const PublishedFamily& family) { return family.means(config); });
}

std::unique_ptr<const PublishedFamily> family_of(const Model& model) {
  return first_family([&](const PublishedFamily& family) { return family.names(model); });
}

PublishedModel published_model(const nlohmann::json& config, const std::string& where) {
  if (!config.is_object()) throw Error(ExitCode::data, {.what = "not a JSON object", .where = where});
  const ConfigReader reader(config, where);
  const std::string type = reader.text("model_type", "");  // wrong in any family where it is no text
  if (reader.find("quantization_config") != nullptr) {
    reader.refuse("these weights are quantised ('quantization_config')", "take the weights that they were made from");
  }
  if (const auto family = family_meant_by(config)) {
    PublishedModel model = family->model_of(config, where);
    if (model.type == "gpt" && classifies(config)) model.defaults.emplace_back("head", "classifier");
    return model;
  }
  reader.refuse(type.empty() ? "'model_type' is missing" : "model_type '" + type + "' is not supported",
                known_families() + " are supported; for other models, give a safetensors file");
}

nlohmann::json published_config(const Model& model) {
  const auto family = family_of(model);
  return family ? family->config_of(model) : nlohmann::json();
}

nlohmann::json completed(nlohmann::json config, const Gpt& model) {
  config["vocab_size"] = model.sizes().vocabulary;
  config["tie_word_embeddings"] = model.spec().tie_embeddings;
  // Only the tokenizer knows which tokens begin, end and pad a text; a reader's defaults would be wrong.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["pad_token_id"] = nullptr;
  if (model.sizes().classes == 0) return config;
  for (nlohmann::json& architecture : config["architectures"]) {
    std::string name = architecture.get<std::string>();
    for (const char* end : {"ForCausalLM", "LMHeadModel"})
      if (name.ends_with(end)) name.resize(name.size() - std::string_view(end).size());
    architecture = name + kClassifies;
  }
  for (int64_t i = 0; i < model.sizes().classes; ++i) {
    const std::string label = "LABEL_" + std::to_string(i);
    config["id2label"][std::to_string(i)] = label;
    config["label2id"][label] = i;
  }
  return config;
}

}  // namespace gputrain::models

// adapter_config.json, PEFT's description of an adapter.
#include <cmath>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "../published/config_json.hpp"
#include "../texts/encoder.hpp"
#include "../texts/gpt.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/models/adapter.hpp"
#include "lora.hpp"

namespace gputrain::models {
namespace {

/// Keys that are read, and keys without effect on what is computed.
const std::set<std::string> kRead{"peft_type",      "r",    "lora_alpha",      "lora_dropout",     "use_rslora",
                                  "target_modules", "bias", "modules_to_save", "init_lora_weights"};
const std::set<std::string> kOfNoEffect{
    "task_type",      "auto_mapping",   "peft_version",  "base_model_name_or_path", "revision",
    "inference_mode", "megatron_core",  "loftq_config",  "qalora_group_size",       "runtime_config",
    "eva_config",     "layers_pattern", "fan_in_fan_out"};

/// Returns whether a setting is off: null, false, or empty.
bool is_off(const nlohmann::json& value) {
  return value.is_null() || value == false || ((value.is_object() || value.is_array()) && value.empty()) ||
         value == "" || value == "none";
}

/// Returns whether training starts from other base weights than those of the files.
bool changes_base(const nlohmann::json& init) {
  if (!init.is_string()) return false;
  const auto& name = init.get_ref<const std::string&>();
  return name != "gaussian" && name != "orthogonal" && name != "eva";
}

std::vector<std::string> names_in(const ConfigReader& reader, const char* key) {
  const nlohmann::json* value = reader.find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  std::vector<std::string> names;
  if (!value->is_array()) reader.refuse(std::string("'") + key + "' is no list of names");
  for (const nlohmann::json& name : *value) {
    if (!name.is_string()) reader.refuse(std::string("'") + key + "' is no list of names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

void refuse_what_is_not_computed(const nlohmann::json& config, const ConfigReader& reader) {
  if (const std::string type = reader.text("peft_type", ""); type != "LORA")
    reader.refuse(type.empty() ? "'peft_type' is missing" : "peft_type '" + type + "' is not supported; LORA is");
  if (const std::string bias = reader.text("bias", "none"); bias != "none")
    reader.refuse("'bias: " + bias + "' is not supported", "adapters that train biases cannot be read");
  const nlohmann::json* init = reader.find("init_lora_weights");
  if (init != nullptr && changes_base(*init)) {
    reader.refuse("'init_lora_weights: " + init->get<std::string>() + "' changes the base's weights",
                  "save it in PEFT with path_initial_model_for_weight_conversion, which turns it into plain LoRA");
  }
  for (const auto& [key, value] : config.items()) {
    if (kRead.contains(key) || kOfNoEffect.contains(key) || is_off(value)) continue;
    reader.refuse("'" + key + "' is not supported: " + value.dump().substr(0, 40));
  }
}

}  // namespace

LoraSettings lora_of(const nlohmann::json& config, const std::string& where) {
  if (!config.is_object()) throw Error(ExitCode::data, {.what = "not a JSON object", .where = where});
  const ConfigReader reader(config, where);
  refuse_what_is_not_computed(config, reader);
  LoraSettings settings;
  settings.rank = reader.size("r").value_or(settings.rank);
  if (settings.rank > kMostRank) reader.refuse("'r' is " + std::to_string(settings.rank) + ": no adapter is so wide");
  settings.alpha = reader.number("lora_alpha", settings.alpha);
  if (!(settings.alpha > 0 && settings.alpha < kMostAlpha))
    reader.refuse("'lora_alpha' is not between 0 and " + grouped(static_cast<int64_t>(kMostAlpha)));
  settings.dropout = reader.number("lora_dropout", 0);
  if (settings.dropout < 0 || settings.dropout >= 1) reader.refuse("'lora_dropout' is no probability below 1");
  settings.rslora = reader.flag("use_rslora", false);
  settings.targets = names_in(reader, "target_modules");
  if (settings.targets.empty()) reader.refuse("'target_modules' is missing", "save the adapter with a newer PEFT");
  settings.modules_to_save = names_in(reader, "modules_to_save");
  return settings;
}

namespace {

/// Returns the task with which PEFT wraps the model; null: none.
nlohmann::json task_type_of(const Model& model) {
  const auto* encoder = dynamic_cast<const Encoder*>(&model);
  if (const auto* decoder = dynamic_cast<const Gpt*>(&model))
    return decoder->sizes().classes > 0 ? "SEQ_CLS" : "CAUSAL_LM";
  if (encoder == nullptr) return "CAUSAL_LM";
  switch (encoder->sizes().head) {
    case HeadKind::classifier:
      return "SEQ_CLS";
    case HeadKind::tagger:
      return "TOKEN_CLS";
    case HeadKind::embedder:
      return "FEATURE_EXTRACTION";
    case HeadKind::mlm:
      break;
  }
  return nullptr;
}

}  // namespace

nlohmann::json peft_config(const Model& model, const LoraSettings& settings, const AdaptedLayers& layers,
                           const std::string& base) {
  nlohmann::json saved, alpha = settings.alpha;
  if (!settings.modules_to_save.empty()) saved = settings.modules_to_save;
  if (settings.alpha == std::floor(settings.alpha)) alpha = static_cast<int64_t>(settings.alpha);
  return {{"peft_type", "LORA"},
          {"task_type", task_type_of(model)},
          {"base_model_name_or_path", base},
          {"inference_mode", true},
          {"r", settings.rank},
          {"lora_alpha", alpha},
          {"lora_dropout", settings.dropout},
          {"use_rslora", settings.rslora},
          {"bias", "none"},
          {"fan_in_fan_out", layers.in_out},
          {"target_modules", layers.names},
          {"modules_to_save", saved}};
}

nlohmann::json read_peft_config(const std::string& folder) {
  const auto path = std::filesystem::path(folder) / kAdapterConfig;
  if (!std::filesystem::exists(path)) {
    throw Error(ExitCode::data, {.what = "there is no " + std::string(kAdapterConfig),
                                 .where = folder,
                                 .hint = "give the folder that PEFT's save_pretrained or a run wrote"});
  }
  auto config = parse_json_file(path);
  if (!config.is_object()) throw Error(ExitCode::data, {.what = "not a JSON object", .where = path.string()});
  return config;
}

}  // namespace gputrain::models

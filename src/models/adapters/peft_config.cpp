// adapter_config.json, PEFT's description of an adapter.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

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
const std::set<std::string> kRead{
    "peft_type", "r",    "lora_alpha",        "lora_dropout",    "target_modules", "use_rslora",
    "use_dora",  "bias", "init_lora_weights", "modules_to_save", "rank_pattern",   "alpha_pattern"};
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

namespace {

/// Reads rank_pattern and alpha_pattern: numbers by patterns of names.
std::vector<LoraPattern> patterns_in(const ConfigReader& reader) {
  std::vector<LoraPattern> patterns;
  const auto read = [&](const char* key, const auto& take) {
    const nlohmann::json* value = reader.find(key);
    if (value == nullptr) return;
    if (!value->is_object()) reader.refuse(std::string("'") + key + "' is no object of numbers by names");
    for (const auto& [match, number] : value->items()) {
      if (!take(patterns.emplace_back(LoraPattern{.match = match}), number))
        reader.refuse(std::string("'") + key + "' gives '" + match + "' no usable number: " + number.dump());
    }
  };
  read("rank_pattern", [](LoraPattern& pattern, const nlohmann::json& number) {
    if (!number.is_number_integer() || number < 1 || number > kMostRank) return false;
    pattern.rank = number.get<int64_t>();
    return true;
  });
  read("alpha_pattern", [](LoraPattern& pattern, const nlohmann::json& number) {
    if (!number.is_number() || number <= 0 || number >= kMostAlpha) return false;
    pattern.alpha = number.get<double>();
    return true;
  });
  return patterns;
}

}  // namespace

LoraSettings lora_of(const nlohmann::json& config, const std::string& where) {
  if (!config.is_object()) throw Error(ExitCode::data, {.what = "not a JSON object", .where = where});
  const ConfigReader reader(config, where);
  refuse_what_is_not_computed(config, reader);
  LoraSettings settings;
  settings.size.rank = reader.size("r").value_or(settings.size.rank);
  if (settings.size.rank > kMostRank)
    reader.refuse("'r' is " + std::to_string(settings.size.rank) + ": no adapter is so wide");
  settings.size.alpha = reader.number("lora_alpha", settings.size.alpha);
  if (!(settings.size.alpha > 0 && settings.size.alpha < kMostAlpha))
    reader.refuse("'lora_alpha' is not between 0 and " + grouped(static_cast<int64_t>(kMostAlpha)));
  settings.dropout = reader.number("lora_dropout", 0);
  if (settings.dropout < 0 || settings.dropout >= 1) reader.refuse("'lora_dropout' is no probability below 1");
  settings.rslora = reader.flag("use_rslora", false);
  settings.dora = reader.flag("use_dora", false);
  settings.patterns = patterns_in(reader);
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

namespace {

nlohmann::json whole_if_it_is(double number) {
  return number == std::floor(number) ? nlohmann::json(static_cast<int64_t>(number)) : nlohmann::json(number);
}

/// Returns the sizes that differ from `usual` by names: by the last part if all layers with that have the same size.
void add_patterns(const std::vector<AdaptedLayers::Layer>& layers, const LoraSize& usual, nlohmann::json& config) {
  const auto last_part = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  std::map<std::string, LoraSize> by_last_part;
  std::set<std::string> differ;  // last parts
  for (const auto& [name, size] : layers) {
    const auto [known, is_new] = by_last_part.emplace(last_part(name), size);
    if (known->second != size) differ.insert(known->first);
  }
  nlohmann::json ranks = nlohmann::json::object(), alphas = ranks;
  for (const auto& [name, size] : layers) {
    const std::string last = last_part(name), key = differ.contains(last) ? name : last;
    if (size.rank != usual.rank) ranks[key] = size.rank;
    if (size.alpha != usual.alpha) alphas[key] = whole_if_it_is(size.alpha);
  }
  config["rank_pattern"] = std::move(ranks);
  config["alpha_pattern"] = std::move(alphas);
}

/// Returns the size of most layers.
LoraSize usual_size(const std::vector<AdaptedLayers::Layer>& layers) {
  LoraSize usual;
  std::ptrdiff_t most = 0;
  for (const auto& [name, size] : layers) {
    const auto count = std::ranges::count(layers, size, &AdaptedLayers::Layer::size);
    if (count > most) usual = size, most = count;
  }
  return usual;
}

}  // namespace

nlohmann::json peft_config(const Model& model, const LoraSettings& settings, const AdaptedLayers& layers,
                           const std::string& base) {
  nlohmann::json saved;
  if (!settings.modules_to_save.empty()) saved = settings.modules_to_save;
  const LoraSize usual = usual_size(layers.layers);
  nlohmann::json config{{"peft_type", "LORA"},
                        {"task_type", task_type_of(model)},
                        {"base_model_name_or_path", base},
                        {"inference_mode", true},
                        {"r", usual.rank},
                        {"lora_alpha", whole_if_it_is(usual.alpha)},
                        {"lora_dropout", settings.dropout},
                        {"use_rslora", settings.rslora},
                        {"use_dora", settings.dora},
                        {"bias", "none"},
                        {"fan_in_fan_out", layers.in_out},
                        {"target_modules", layers.names},
                        {"modules_to_save", saved}};
  add_patterns(layers.layers, usual, config);
  return config;
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

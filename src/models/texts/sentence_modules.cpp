#include "gputrain/models/sentence_modules.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "../published/config_json.hpp"
#include "encoder.hpp"
#include "gputrain/core/json.hpp"

namespace gputrain::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kAlone = "to start from the encoder alone, copy its folder without modules.json";

[[noreturn]] void refuse_module(const fs::path& file, const std::string& what) {
  throw Error(ExitCode::data, {.what = what, .where = file.string(), .hint = kAlone});
}

json read_json(const fs::path& file) {
  json read = parse_json_file(file);
  if (read.is_discarded()) throw Error(ExitCode::data, {.what = "not JSON", .where = file.string()});
  return read;
}

/// Reads an object; returns an empty one if there is no such file.
json read_object(const fs::path& file) {
  if (!fs::exists(file)) return json::object();
  json read = read_json(file);
  if (!read.is_object()) throw Error(ExitCode::data, {.what = "not a JSON object", .where = file.string()});
  return read;
}

/// Names of the ways to pool in the package, in files since version 5.4 and before.
const std::map<std::string, std::string> kPoolings{{"mean", "mean"}, {"cls", "first"}, {"lasttoken", "last"}};
const std::map<std::string, std::string> kOldPoolings{{"pooling_mode_cls_token", "cls"},
                                                      {"pooling_mode_max_tokens", "max"},
                                                      {"pooling_mode_mean_tokens", "mean"},
                                                      {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
                                                      {"pooling_mode_weightedmean_tokens", "weightedmean"},
                                                      {"pooling_mode_lasttoken", "lasttoken"}};

std::string pooling_in(const fs::path& file) {
  const json config = read_object(file);
  const ConfigReader reader(config, file.string());
  std::vector<std::string> modes;
  if (const json* named = reader.find("pooling_mode")) {
    for (const json& mode : named->is_array() ? *named : json::array({*named})) {
      if (!mode.is_string()) refuse_module(file, "'pooling_mode' is no text");
      modes.push_back(mode.get<std::string>());
    }
  } else {
    for (const auto& [key, mode] : kOldPoolings)
      if (reader.flag(key.c_str(), false)) modes.push_back(mode);
  }
  if (modes.empty()) modes.push_back("mean");
  const auto ours = kPoolings.find(modes.front());
  if (modes.size() > 1 || ours == kPoolings.end())
    refuse_module(file, "pooling '" + modes.back() + (modes.size() > 1 ? "' beside another" : "'") +
                            " is not supported: mean, cls and lasttoken are");
  return ours->second;
}

void check_normalize(const fs::path& file) {
  const json config = read_object(file);
  const ConfigReader reader(config, file.string());
  for (const char* key : {"module_input_name", "module_output_name"})
    if (reader.text(key, "sentence_embedding") != "sentence_embedding")
      refuse_module(file, std::string("'") + key + "' other than sentence_embedding is not supported");
}

/// Reads the limit from the package's file, or from the tokenizer's, where newer versions keep it. A tokenizer without
/// a limit has a number that no text reaches.
std::optional<int64_t> longest_text_in(const fs::path& folder) {
  const fs::path own = folder / "sentence_bert_config.json", tokenizer = folder / "tokenizer_config.json";
  const json config = read_object(own), beside = read_object(tokenizer);
  if (ConfigReader(config, own.string()).flag("do_lower_case", false) && !beside.value("do_lower_case", false))
    refuse_module(own, "'do_lower_case: true' is not supported where the tokenizer does not do so itself");
  if (const auto longest = ConfigReader(config, own.string()).size("max_seq_length")) return longest;
  const json* limit = ConfigReader(beside, tokenizer.string()).find("model_max_length");
  constexpr int64_t kNoLimit = int64_t{1} << 24;
  if (limit == nullptr || !limit->is_number() || limit->get<double>() < 1 || limit->get<double>() > kNoLimit)
    return std::nullopt;
  return limit->get<int64_t>();
}

void check_prompt(const fs::path& file) {
  const json config = read_object(file);
  if (ConfigReader(config, file.string()).find("default_prompt_name") != nullptr)
    refuse_module(file, "'default_prompt_name' is not supported");
}

}  // namespace

std::optional<SentenceModules> read_sentence_modules(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  if (!fs::exists(file)) return std::nullopt;
  const json list = read_json(file);
  if (!list.is_array()) throw Error(ExitCode::data, {.what = "not a JSON list", .where = file.string()});
  SentenceModules modules;
  size_t poolings = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) throw Error(ExitCode::data, {.what = "a module is no object", .where = file.string()});
    const ConfigReader reader(list[i], file.string());
    const std::string type = reader.text("type", ""), kind = type.substr(type.rfind('.') + 1);
    const fs::path config = folder / reader.text("path", "") / "config.json";
    if (i == 0 && kind == "Transformer") {
      if (!reader.text("path", "").empty())
        refuse_module(file, "the encoder lies in '" + reader.text("path", "") + "', not beside modules.json");
    } else if (i == 1 && kind == "Pooling") {
      modules.pooling = pooling_in(config);
      ++poolings;
    } else if (i > 1 && kind == "Normalize") {
      check_normalize(config);
      modules.normalizes = true;
    } else {
      refuse_module(file, "module '" + type + "' is not supported in place " + std::to_string(i));
    }
  }
  if (poolings == 0) refuse_module(file, "there is no module that pools");
  check_prompt(folder / "config_sentence_transformers.json");
  modules.longest_text = longest_text_in(folder);
  return modules;
}

std::optional<SentenceModules> sentence_modules_of(const Model& model) {
  const auto* encoder = dynamic_cast<const Encoder*>(&model);
  if (encoder == nullptr || encoder->sizes().head != HeadKind::embedder) return std::nullopt;
  const EncoderSizes& sizes = encoder->sizes();
  return SentenceModules{.pooling = sizes.pooling == Pooling::mean    ? "mean"
                                    : sizes.pooling == Pooling::first ? "first"
                                                                      : "last",
                         .normalizes = sizes.normalizes,
                         .longest_text = sizes.positions,
                         .channels = sizes.channels};
}

std::vector<std::string> settings_of(const SentenceModules& modules, const config::Loaded& job,
                                     const std::string& key) {
  std::map<std::string, std::string> values;
  for (const config::Setting& setting : job.settings()) values[setting.key] = setting.value;
  const auto is_said = [&](const std::string& dotted) {
    return job.origin(dotted) != "default" && values[dotted] != "null" && values[dotted] != "auto";
  };
  const std::string head = key + ".config.head";
  if (is_said(head) && values[head] != "embedder") return {};
  std::vector<std::string> lines;
  const auto suggest = [&](const std::string& dotted, const std::string& value) {
    if (!is_said(dotted)) lines.push_back(dotted + "=" + value);
  };
  suggest(head, "embedder");
  suggest(key + ".config.pooling", modules.pooling);
  suggest(key + ".config.normalize", modules.normalizes ? "true" : "false");
  if (modules.longest_text) suggest("data.text.max_length", std::to_string(*modules.longest_text));
  return lines;
}

}  // namespace gputrain::models

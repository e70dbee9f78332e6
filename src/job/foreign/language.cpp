// What jobs of language models have in common: the base, data sets and templates.
#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "gputrain/chat/model_templates.hpp"
#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

namespace fs = std::filesystem;

/// Returns the format of records by a file's name, or by datasets' name for it; empty: unknown.
std::string format_of(const std::string& name, const std::string& kind) {
  constexpr std::array<std::pair<const char*, const char*>, 9> kFormats{{{".jsonl", "jsonl"},
                                                                         {".json", "jsonl"},
                                                                         {".csv", "csv"},
                                                                         {".tsv", "tsv"},
                                                                         {".parquet", "parquet"},
                                                                         {".txt", "text"},
                                                                         {"json", "jsonl"},
                                                                         {"csv", "csv"},
                                                                         {"parquet", "parquet"}}};
  for (const auto& [ending, format] : kFormats)
    if (name.ends_with(ending) && ending[0] == '.') return format;
  for (const auto& [word, format] : kFormats)
    if (kind == word) return format;
  return kind == "text" ? "text" : "";
}

/// Returns the name of a folder for a data set: "data/alpaca" of "tatsu-lab/alpaca".
std::string folder_of(const std::string& name) {
  return "data/" + name.substr(name.find_last_of('/') == std::string::npos ? 0 : name.find_last_of('/') + 1);
}

}  // namespace

void set_language_model(Moving& job, const std::string& name) {
  job.set("model.type", "gpt");
  job.set_text("model.pretrained", name);
  job.otherwise("data.text.tokenizer", "pretrained", "");
  std::error_code ignored;
  if (!fs::exists(name, ignored) && std::ranges::count(name, '/') == 1)
    job.remark("`gputrain fetch " + name + "` brings the model here.");
}

void set_reward_head(Moving& job) {
  job.set("model.config.head", "classifier");
  if (job.sets("model.adapter.type")) job.otherwise("model.adapter.modules_to_save", "[score]", "the new head");
}

void set_data(Moving& job, const std::string& role, const std::string& name, const std::string& split,
              const std::string& configuration, const std::string& format) {
  const std::string key = "data." + role;
  std::error_code ignored;
  const std::string known = format_of(name, format);
  if (fs::exists(name, ignored) || !format_of(name, "").empty() || name.starts_with('/') || name.starts_with('.')) {
    job.set_text(key + ".path", name);
    return job.set(key + ".format", known.empty() ? "jsonl" : known);
  }
  const std::string part = split.substr(0, split.find('['));
  const std::string folder = folder_of(name);
  job.set_text(key + ".path", folder + "/" + (configuration.empty() ? "default" : configuration) + "/" +
                                  (part.empty() ? "train" : part) + "/*.parquet");
  job.set(key + ".format", "parquet");
  if (role == "train")
    job.remark("`hf download " + name + " --repo-type dataset --revision refs/convert/parquet --local-dir " + folder +
               "` brings the data here.");
  if (split.find('[') != std::string::npos)
    job.remark("Only " + split + " of it was used: gputrain uses all of data." + role + ".path.");
}

void set_chat_template(Moving& job, const std::string& key, const std::string& name) {
  if (name.empty() || name == "tokenizer_default" || name == "default") return;
  std::string ours = name;
  if (ours.starts_with("tokenizer_default_fallback_"))
    ours = ours.substr(std::string("tokenizer_default_fallback_").size());
  const std::vector<std::string> known = chat::built_in_chat_templates();
  if (std::ranges::find(known, ours) != known.end()) return job.set("data.text.chat_template", ours);
  if (name.ends_with(".jinja")) return job.set_text("data.text.chat_template", name);
  job.tell(key,
           "the template of the model's own folder is used; data.text.chat_template takes another as a .jinja file");
}

void move_lora_plus(Moving& job, const std::string&, const config::Node& value) {
  job.set("optimizer.groups", "[{match: '*.lora_B.weight', lr: " + value.text + "x}]", "LoRA+");
}

void move_held_out(Moving& job, const std::string& dotted, const config::Node& value) {
  const double size = job.number(dotted, 0);
  if (size >= 1)
    job.tell(dotted, "a share of the data is held out: data.val: {split: 5%}");
  else if (!is_off(value))
    job.set("data.val.split", fmt::format("{:g}%", size * 100));
}

}  // namespace gputrain::app::foreign

// What jobs of language models have in common: the base, data sets and templates.
#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gputrain/chat/model_templates.hpp"
#include "gputrain/config/settings_file.hpp"
#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

namespace fs = std::filesystem;
using config::Node;

constexpr const char* kLossOn = "data.text.loss_on";

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

/// Returns the files of a data set, or the one place that it is in; an empty text: it names none.
std::vector<std::string> files_of(const Node& data) {
  if (data.kind == Node::Kind::scalar) return {data.text};
  const Node* files = data.find("data_files");
  if (files != nullptr && files->kind == Node::Kind::map) {
    const std::string split = text_in(data, "split");
    files = files->find(split.empty() ? "train" : split);
  }
  std::vector<std::string> names;
  if (files != nullptr && files->kind == Node::Kind::scalar) names.push_back(files->text);
  if (files != nullptr)
    for (const Node& part : files->parts) names.push_back(part.text);
  if (names.empty()) names.push_back(text_in(data, "path"));
  return names;
}

/// Returns the first key that two data sets need with other values; empty: there is none. What is learned is not among
/// them: without a line about it, each record says it by its form.
std::string other_line(const Moving& first, const Moving& one) {
  std::set<std::string> keys;
  for (const Moving* each : {&first, &one})
    for (const auto& [ours, unused] : each->lines())
      if (ours.starts_with("data.text.") && ours != kLossOn) keys.insert(ours);
  const auto differs = [&](const std::string& ours) { return first.value_of(ours) != one.value_of(ours); };
  const auto found = std::ranges::find_if(keys, differs);
  return found == keys.end() ? "" : *found;
}

/// Returns why a data set cannot be read together with those in `paths`, of which `first` is one; empty: it can be.
std::string reason_to_leave_out(const Moving& first, const Moving& one, const std::string& role,
                                const std::vector<std::string>& paths, const std::string& path) {
  const std::string key = "data." + role + ".path", format = "data." + role + ".format";
  const std::string way = " and add its file to " + key + ": '{" + paths.front() + ",FILE}'";
  std::error_code ignored;
  if (std::ranges::find(paths, path) != paths.end())
    return path + " is read once in an epoch, however often it is named: a copy under another name is read, too";
  for (const std::string& each : {paths.front(), path})
    if (each.find_first_of("{},[") != std::string::npos || fs::is_directory(each, ignored))
      return "left out: beside others, " + each +
             " must be a file or a pattern, and have no comma, brace or bracket: " + key +
             ": '{a.jsonl,folder/*.jsonl}'";
  if (one.value_of(format) != first.value_of(format))
    return "left out: files that are read together have one format, and this is " + one.value_of(format) +
           " where the first is " + first.value_of(format) + ". Write it in that format," + way;
  const std::string ours = other_line(first, one);
  if (ours.empty()) return {};
  const auto value_in = [&](const Moving& of) { return of.sets(ours) ? of.value_of(ours) : "null"; };
  return "left out: it needs " + ours + ": " + value_in(one) + ", and the first one " + value_in(first) +
         ", which holds for all records. Bring its records into the form of the first one," + way;
}

}  // namespace

std::string text_in(const Node& map, std::string_view key) {
  const Node* part = map.find(key);
  return part != nullptr && part->kind == Node::Kind::scalar ? part->text : "";
}

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
  if (split.find('[') != std::string::npos)
    job.tell("split of " + name, split,
             key +
                 ".path is read whole: a file of that part alone is written in Python by load_dataset(NAME, "
                 "split=...).to_json(FILE) of the package datasets");
  if (fs::exists(name, ignored) || !format_of(name, "").empty() || name.starts_with('/') || name.starts_with('.')) {
    job.set_text(key + ".path", name);
    return job.set(key + ".format", known.empty() ? "jsonl" : known);
  }
  const std::string part = split.substr(0, split.find('['));
  const std::string folder = folder_of(name);
  job.set_text(key + ".path", folder + "/" + (configuration.empty() ? "default" : configuration) + "/" +
                                  (part.empty() ? "train" : part) + "/*.parquet");
  job.set(key + ".format", "parquet");
  job.remark("`hf download " + name + " --repo-type dataset --revision refs/convert/parquet --local-dir " + folder +
             "` brings the data here.");
}

void set_data_sets(Moving& job, const std::string& role, const std::vector<DataSet>& sets) {
  if (sets.empty()) return;
  const std::string key = "data." + role + ".path";
  const auto path_of = [&](const Moving& one) { return config::document(one.value_of(key), key).text; };
  Moving whole = sets.front().moved;
  std::vector<std::string> paths{path_of(whole)};
  for (const DataSet& set : std::span(sets).subspan(1)) {
    const std::string path = path_of(set.moved);
    const std::string why = reason_to_leave_out(sets.front().moved, set.moved, role, paths, path);
    if (!why.empty()) {
      job.tell(set.place, set.theirs, why);
      continue;
    }
    paths.push_back(path);
    if (set.moved.value_of(kLossOn) != whole.value_of(kLossOn)) whole.remove(kLossOn);
    whole.add_told(set.moved);
  }
  if (paths.size() > 1) whole.set_text(key, fmt::format("{{{}}}", fmt::join(paths, ",")));
  job.add(whole);
}

void move_data_list(Moving& job, const std::string& dotted, const Node& value, const std::string& role,
                    const std::function<void(Moving& one, const Node& data, const std::string& place)>& move_rest) {
  const bool is_list = value.kind == Node::Kind::list;
  std::vector<DataSet> sets;
  for (size_t i = 0; i < (is_list ? value.parts.size() : 1); ++i) {
    const Node& data = is_list ? value.parts[i] : value;
    const std::string place = dotted + "[" + std::to_string(i) + "]";
    const std::vector<std::string> files = files_of(data);
    const std::string kind = text_in(data, "ds_type").empty() ? text_in(data, "path") : text_in(data, "ds_type");
    for (const std::string& file : files) {
      if (file.empty()) {
        job.tell(place, config::to_flow(data), "left out: it has no path");
        continue;
      }
      const bool is_one_of_several = files.size() > 1;
      DataSet one{.place = is_one_of_several ? place + " " + file : place,
                  .theirs = is_one_of_several ? "a file of it" : config::to_flow(data),
                  .moved = job.apart()};
      set_data(one.moved, role, file, text_in(data, "split"), text_in(data, "name"), kind);
      move_rest(one.moved, data, place);
      sets.push_back(std::move(one));
    }
  }
  set_data_sets(job, role, sets);
}

void set_chat_template(Moving& job, const std::string& key, const std::string& name) {
  if (name.empty() || name == "tokenizer_default" || name == "default") return;
  std::string ours = name;
  if (ours.starts_with("tokenizer_default_fallback_"))
    ours = ours.substr(std::string("tokenizer_default_fallback_").size());
  const std::vector<std::string> known = chat::built_in_chat_templates();
  if (std::ranges::find(known, ours) != known.end()) return job.set("data.text.chat_template", ours);
  if (name.ends_with(".jinja")) return job.set_text("data.text.chat_template", name);
  job.tell(key, name,
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

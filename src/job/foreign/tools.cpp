// Tools whose jobs are known, and how one is told from the other.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gputrain/config/problem.hpp"
#include "gputrain/config/settings_file.hpp"
#include "gputrain/core/error.hpp"
#include "moving.hpp"

namespace gputrain::app {
namespace foreign {
namespace {

using config::Node;

void finish_arguments(Moving& job) {
  job.remark("TrainingArguments name neither the model nor the data: fill in model and data above.");
  job.otherwise("model.type", "gpt", "");
  job.otherwise("model.pretrained", "MODEL", "the folder of a model, or its name on the Hub");
  job.otherwise("data.train.path", "train.jsonl", "a guess");
  job.otherwise("data.train.format", "jsonl", "");
  job.otherwise("data.text.tokenizer", "pretrained", "");
  if (const std::string how = job.text("eval_strategy"); !how.empty() && how != "no")
    job.otherwise("data.val.split", "5%", "a guess");
  finish_trainer(job);
}

bool ends_with(const std::filesystem::path& file, std::initializer_list<const char*> endings) {
  return std::ranges::any_of(endings, [&](const char* ending) { return file.extension() == ending; });
}

Node read(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored))
    throw Error(ExitCode::data, {.what = "no such file", .where = file});
  std::ifstream stream(file);
  if (!stream) throw Error(ExitCode::environment, {.what = "cannot be read", .where = file});
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (ends_with(file, {".yaml", ".yml", ".json"})) return config::document(text, file);
  Node line = read_command_line(text);
  return line.parts.empty() ? config::document(text, file) : line;
}

}  // namespace

const std::vector<Tool>& tools() {
  static const std::vector<Tool> kTools{
      {"axolotl", "axolotl", {&axolotl_rows(), &trainer_rows()}, finish_axolotl},
      {"llamafactory", "LLaMA-Factory", {&llama_factory_rows(), &trainer_rows()}, finish_llama_factory},
      {"trl-sft", "TRL's SFT", {&trl_rows(), &trainer_rows()}, finish_trl_sft},
      {"trl-dpo", "TRL's DPO", {&trl_rows(), &trainer_rows()}, finish_trl_dpo},
      {"trl-kto", "TRL's KTO", {&trl_rows(), &trainer_rows()}, finish_trl_kto},
      {"trl-orpo", "TRL's ORPO", {&trl_rows(), &trainer_rows()}, finish_trl_orpo},
      {"trl-reward", "TRL's reward model", {&trl_rows(), &trainer_rows()}, finish_trl_reward},
      {"timm", "timm", {&timm_rows()}, finish_timm},
      {"transformers", "transformers' TrainingArguments", {&trainer_rows()}, finish_arguments}};
  return kTools;
}

const Tool* tool_of(const Node& theirs) {
  const auto has = [&](std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return theirs.find(key) != nullptr; });
  };
  const auto named = [](const std::string& name) {
    const auto found = std::ranges::find(tools(), name, &Tool::name);
    return found == tools().end() ? nullptr : &*found;
  };
  if (const Node* program = theirs.find("program")) {
    if (program->text == "train.py") return named(has({"model_name_or_path"}) ? "transformers" : "timm");
    const std::string method = program->text.substr(0, program->text.find_first_of("._"));
    return named("trl-" + method);
  }
  if (has({"base_model"})) return named("axolotl");
  if (has({"stage", "finetuning_type", "cutoff_len", "lora_target", "template"}) && has({"model_name_or_path"}))
    return named("llamafactory");
  if (has({"model_name_or_path"}) && has({"dataset_name", "datasets"})) {
    if (has({"desirable_weight", "undesirable_weight"})) return named("trl-kto");
    if (has({"center_rewards_coefficient"})) return named("trl-reward");
    if (has({"beta", "precompute_ref_log_probs"})) return named("trl-dpo");
    return has({"packing", "dataset_text_field", "assistant_only_loss", "completion_only_loss"}) ? named("trl-sft")
                                                                                                 : nullptr;
  }
  if (has({"opt", "sched", "aa", "reprob", "drop_path"}) && has({"model", "epochs", "batch_size"}))
    return named("timm");
  return has({"per_device_train_batch_size", "num_train_epochs"}) ? named("transformers") : nullptr;
}

/// Returns what rows say of one key alone; nothing: they do not have it.
static std::optional<config::Schema::Instead> instead(const std::vector<const Table*>& tables, const std::string& name,
                                                      const Node& value) {
  Node root;
  root.kind = Node::Kind::map;
  root.parts.push_back(value);
  root.parts.back().key = name;
  if (value.kind == Node::Kind::null) {
    root.parts.back().kind = Node::Kind::scalar;
    root.parts.back().text = "true";
  }
  Moving job(root);
  try {
    if (!move_all(job, root, tables).empty()) return std::nullopt;
  } catch (const Error& refused) {
    return config::Schema::Instead{{}, refused.parts().what};
  }
  if (value.kind == Node::Kind::null) return config::Schema::Instead{{}, "leave it out"};
  if (!job.told().empty()) return config::Schema::Instead{{}, job.told().front().why};
  if (job.settings().empty()) return std::nullopt;
  return config::Schema::Instead{job.settings()};
}

}  // namespace foreign

std::vector<std::string> foreign_tools() {
  std::vector<std::string> names;
  for (const foreign::Tool& tool : foreign::tools()) names.push_back(tool.name);
  return names;
}

MovedJob move_job(const std::string& file, const std::string& tool) {
  const config::Node theirs = foreign::read(file);
  if (theirs.kind != config::Node::Kind::map || theirs.parts.empty())
    throw Error(ExitCode::usage, {.what = "this has no keys",
                                  .where = file,
                                  .hint = "a YAML or JSON file, or a shell script with the command line"});
  const foreign::Tool* found = foreign::tool_of(theirs);
  if (!tool.empty()) found = &*std::ranges::find(foreign::tools(), tool, &foreign::Tool::name);
  if (found == nullptr) {
    std::string names;
    for (const std::string& name : foreign_tools()) names += (names.empty() ? "" : ", ") + name;
    throw Error(ExitCode::usage, {.what = "which tool this file is for cannot be told from its keys",
                                  .where = file,
                                  .hint = "--from with one of: " + names});
  }
  foreign::Moving job(theirs);
  const std::vector<std::string> unknown = foreign::move_all(job, theirs, found->tables);
  found->finish(job);
  return job.finish(found->title, std::filesystem::path(file).filename().string(), unknown);
}

void refuse_foreign_job(const std::filesystem::path& file) {
  std::error_code ignored;
  std::ifstream stream(file);
  if (!std::filesystem::is_regular_file(file, ignored) || !stream) return;
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  config::Node root;
  try {
    root = config::document(text, file.string());
  } catch (const config::SpecError&) {
    return;  // load() says more about it
  }
  for (const char* group : {"model", "data"})
    if (const config::Node* ours = root.find(group); ours != nullptr && ours->kind == config::Node::Kind::map) return;
  const foreign::Tool* tool = root.kind == config::Node::Kind::map ? foreign::tool_of(root) : nullptr;
  if (tool == nullptr) return;
  throw Error(ExitCode::usage, {.what = "this is a job of " + tool->title,
                                .where = file.string(),
                                .hint = "`gputrain import " + file.string() + "` writes one for gputrain"});
}

std::optional<config::Schema::Instead> instead_of_foreign(const std::string& dotted, const config::Node& value) {
  const std::string last = dotted.substr(dotted.rfind('.') == std::string::npos ? 0 : dotted.rfind('.') + 1);
  config::Node given = value;
  // A value that switches something off is told as one that does not: the user has written it down.
  if (given.kind != config::Node::Kind::map && foreign::is_off(given)) given.kind = config::Node::Kind::null;
  if (auto found = foreign::instead({&foreign::other_rows()}, last, given)) return found;
  if (dotted != last) return std::nullopt;
  if (auto found = foreign::instead({&foreign::other_top_rows()}, last, given)) return found;
  for (const foreign::Tool& tool : foreign::tools())
    if (auto found = foreign::instead(tool.tables, last, given)) return found;
  return std::nullopt;
}

std::string describe_foreign(const std::string& name) {
  config::Node root;
  root.kind = config::Node::Kind::map;
  root.parts.emplace_back().key = name;
  root.parts.back().kind = config::Node::Kind::scalar;
  root.parts.back().text = "1";
  std::string text;
  std::vector<std::string> seen;  // TRL has five trainers
  for (const foreign::Tool& tool : foreign::tools()) {
    foreign::Moving job(root);
    std::string what = "gputrain does not have it";
    try {
      if (!foreign::move_all(job, root, tool.tables).empty()) continue;
      what = "`gputrain import` reads it together with other keys";
      if (!job.told().empty()) what = job.told().front().why;
      std::string keys;
      for (const auto& [key, unused] : job.settings()) keys += (keys.empty() ? "" : " and ") + key;
      if (!keys.empty()) what = "is " + keys + " here";
    } catch (const Error& refused) {
      what = refused.parts().what;
    }
    if (std::ranges::find(seen, what) != seen.end()) continue;
    seen.push_back(what);
    text += name + " of " + tool.title + (what.starts_with("is ") ? " " : ": ") + what + "\n";
  }
  return text;
}

}  // namespace gputrain::app

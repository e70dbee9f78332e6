// Tools whose jobs are known, and how one is told from the other.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gputrain/config/load.hpp"
#include "gputrain/config/problem.hpp"
#include "gputrain/config/settings_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/tasks/task.hpp"
#include "moving.hpp"

namespace gputrain::app {
namespace foreign {
namespace {

using config::Node;

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
  if (ends_with(file, {".py"}))
    throw Error(ExitCode::usage,
                {.what = "a Python script is not read",
                 .where = file,
                 .hint = "its arguments are: print(args.to_json_string()) of its TrainingArguments, "
                         "written to args.json; or a shell script with the command line that starts it"});
  Node line = read_command_line(text);
  if (!line.parts.empty()) return line;
  Node whole = config::document(text, file);
  if (whole.kind == Node::Kind::map) return whole;
  throw Error(ExitCode::usage,
              {.what = "this has no keys, and no command line that is known",
               .where = file,
               .hint = "a YAML or JSON file, or a shell script that starts run_glue.py, run_clm.py or another example "
                       "of transformers, TRL's `trl sft` or sft.py, or timm's train.py"});
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
      {"transformers", "transformers", {&trainer_rows(), &script_rows(), &other_rows()}, finish_transformers}};
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
    if (program->text.starts_with("run_")) return named("transformers");
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
  return has({"per_device_train_batch_size", "per_gpu_train_batch_size", "num_train_epochs", "train_file"})
             ? named("transformers")
             : nullptr;
}

/// Leaves out a metric that the job's task does not have.
static void mind_metric(Moving& job) {
  const std::string metric = job.value_of("checkpoint.metric");
  if (metric.empty()) return;
  try {
    const config::Loaded loaded = config::load(
        job_schema(), {.file = "the job", .text = job.finish({}, {}, {}, {}).yaml, .set = {"model.pretrained=null"}});
    const JobSpec& spec = loaded.as<JobSpec>();
    const auto measured = tasks::catalog().measured(spec.task.type, models::catalog().reads(spec.model.architecture));
    if (measured.empty() || std::ranges::find(measured, metric) != measured.end()) return;
    job.remove("checkpoint.metric");
    job.tell("metric_for_best_model",
             fmt::format("this task does not measure it: it has {}", fmt::join(measured, ", ")));
  } catch (const config::SpecError&) {
    return;  // whoever checks the whole job says more
  }
}

Moved moved_by(const Tool& tool, const Node& theirs) {
  Moved moved{Moving(theirs), {}, {}};
  moved.unknown = move_all(moved.job, theirs, tool.tables);
  tool.finish(moved.job);
  mind_metric(moved.job);
  return moved;
}

/// Returns whether the job would have the same lines without one key of theirs.
static bool changes_nothing(const Tool& tool, Node theirs, const std::string& key, const Moving& with_it) {
  std::erase_if(theirs.parts, [&](const Node& part) { return part.key == key; });
  try {
    return moved_by(tool, theirs).job.lines() == with_it.lines();
  } catch (const Error&) {
    return false;  // it must be there
  }
}

/// Finds the keys of a moved job that change nothing.
static void find_unchanging(const Tool& tool, const Node& theirs, Moved& moved) {
  for (const Node& part : theirs.parts) {
    const auto is_in = [&](const std::string& dotted) {
      return dotted == part.key || dotted.starts_with(part.key + ".");
    };
    const bool is_known = moved.job.has(part.key) && std::ranges::none_of(moved.unknown, is_in);
    if (!is_known || moved.job.has_line(part.key) || moved.job.tells(part.key)) continue;
    if (changes_nothing(tool, theirs, part.key, moved.job)) moved.unchanging.push_back(part.key);
  }
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
  foreign::Moved moved = foreign::moved_by(*found, theirs);
  foreign::find_unchanging(*found, theirs, moved);
  return moved.job.finish(found->title, std::filesystem::path(file).filename().string(), moved.unknown,
                          moved.unchanging);
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

}  // namespace gputrain::app

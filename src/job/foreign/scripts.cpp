// Example scripts of transformers 5 (run_clm.py, run_mlm.py, run_glue.py, run_classification.py, run_xnli.py,
// run_ner.py), whose arguments are TrainingArguments and others, and files with TrainingArguments alone.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/models/published.hpp"
#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;

/// A script, and the model that it trains.
struct Script {
  std::string_view begin;  // of its name: run_clm_no_trainer.py begins so, too
  const char *type, *head;
  const char* longest;  // its default for the length of a text; empty: that of the model
};
constexpr std::array<Script, 6> kScripts{{{"run_clm", "gpt", "tokens", "1024"},
                                          {"run_mlm", "bert", "mlm", ""},
                                          {"run_glue", "bert", "classifier", "128"},
                                          {"run_classification", "bert", "classifier", "128"},
                                          {"run_xnli", "bert", "classifier", "128"},
                                          {"run_ner", "bert", "tagger", ""}}};

/// Columns of GLUE's tasks; the second one is empty where a text stands alone.
struct GlueTask {
  std::string_view name;
  const char *text, *pair;
};
constexpr std::array<GlueTask, 9> kGlue{{{"cola", "sentence", ""},
                                         {"mnli", "premise", "hypothesis"},
                                         {"mrpc", "sentence1", "sentence2"},
                                         {"qnli", "question", "sentence"},
                                         {"qqp", "question1", "question2"},
                                         {"rte", "sentence1", "sentence2"},
                                         {"sst2", "sentence", ""},
                                         {"stsb", "sentence1", "sentence2"},
                                         {"wnli", "sentence1", "sentence2"}}};

/// Returns the script that a command line starts; null: the file has arguments alone. Throws Error(usage) for scripts
/// that train something else.
const Script* script_of(const Moving& job) {
  const std::string program = job.text("program");
  if (!program.starts_with("run_")) return nullptr;
  const std::string name = program.substr(0, program.find('.'));
  const auto found = std::ranges::find_if(
      kScripts, [&](const Script& one) { return name == one.begin || name == std::string(one.begin) + "_no_trainer"; });
  if (found != kScripts.end()) return &*found;
  const bool is_of_images = name.find("image") != std::string::npos || name.find("segmentation") != std::string::npos;
  throw Error(
      ExitCode::usage,
      {.what = "jobs are not moved from " + program,
       .where = {},
       .hint = is_of_images ? "`gputrain init FOLDER` writes a job for images"
                            : "from run_clm.py, run_mlm.py, run_glue.py, run_classification.py, run_xnli.py and "
                              "run_ner.py they are"});
}

/// Returns the type of a published model that is here; empty: it is not.
std::string type_of(const std::string& name) {
  const std::filesystem::path config = hub::pretrained_path_or_name(name) / "config.json";
  std::error_code ignored;
  if (name.empty() || !std::filesystem::is_regular_file(config, ignored)) return {};
  try {
    return models::published_model(checkpoint::read_json_object(config), config.string()).type;
  } catch (const Error&) {
    return {};  // `gputrain run` says why it is not read
  }
}

/// Returns whether a name is that of a decoder.
bool sounds_like_gpt(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* word : {"gpt", "llama", "qwen", "mistral", "gemma", "phi", "pythia", "smollm", "olmo"})
    if (name.find(word) != std::string::npos) return true;
  return false;
}

/// Returns whether the best model is chosen by a metric of classes.
bool is_judged_by_classes(const Moving& job) {
  constexpr std::array kOfClasses{"accuracy", "f1", "f1_macro", "precision", "recall", "auc", "mcc", "top1", "top5"};
  const std::string metric = our_word("checkpoint.metric", job.text("metric_for_best_model"));
  return std::ranges::find(kOfClasses, metric) != kOfClasses.end();
}

/// Sets the model, with the head that the script or the metric asks for.
void set_model(Moving& job, const Script* script) {
  std::string name = job.text("model_name_or_path");
  const std::string known = type_of(name);
  const bool has_classes = script == nullptr && is_judged_by_classes(job);
  std::string type = script != nullptr ? script->type : has_classes ? "bert" : "gpt";
  if (type == "bert" && sounds_like_gpt(name)) type = "gpt";
  if (!known.empty()) type = known;
  std::string head = script != nullptr ? script->head : has_classes ? "classifier" : "";
  if (head.empty() && type == "bert") head = "classifier";
  const std::string by_metric = "a guess by metric_for_best_model";
  const std::string guess = has_classes ? by_metric : "a guess; `gputrain list models` has others";
  job.set("model.type", type, script == nullptr && known.empty() ? guess : "");
  if (!head.empty() && head != "tokens")
    job.set("model.config.head", head,
            script != nullptr ? ""
            : has_classes     ? by_metric
                              : "a guess; others are mlm, tagger and embedder");
  if (name.empty()) {
    job.set_text("model.pretrained", kModelToFillIn, "fill in: the folder of a model, or its name on the Hub");
  } else {
    std::error_code ignored;
    if (known.empty() && !std::filesystem::exists(name, ignored))
      job.remark("`gputrain fetch " + name + "` brings the model here.");
    if (job.has("model_revision") && job.text("model_revision") != "main") name += "@" + job.text("model_revision");
    job.set_text("model.pretrained", name);
  }
  job.otherwise("data.text.tokenizer", "pretrained", "");
}

/// Returns the columns of the first record of a file; empty: it is not here, or has none.
std::vector<std::string> columns_in(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::vector<std::string> columns;
  if (!std::getline(stream, line)) return columns;
  if (const auto record = nlohmann::ordered_json::parse(line, nullptr, false); record.is_object()) {
    for (const auto& [name, unused] : record.items()) columns.push_back(name);
  } else if (file.ends_with(".csv") || file.ends_with(".tsv")) {
    std::istringstream names(line);
    for (std::string name; std::getline(names, name, file.ends_with(".csv") ? ',' : '\t');) {
      std::erase_if(name, [](char c) { return c == '"' || c == '\r'; });
      columns.push_back(name);
    }
  }
  return columns;
}

void set_columns(Moving& job, const std::string& text, const std::string& pair) {
  if (!text.empty() && text != "text") job.set_text("data.text.columns.text", text);
  if (!pair.empty() && pair != "text_pair") job.set_text("data.text.columns.text_pair", pair);
}

/// Sets the columns of texts with classes as run_glue.py finds them: sentence1 and sentence2, or the first two that
/// are no label.
void set_columns_of_classes(Moving& job, const std::string& file) {
  std::vector<std::string> columns = columns_in(file);
  const auto has = [&](const char* name) { return std::ranges::find(columns, name) != columns.end(); };
  if (has("sentence1") && has("sentence2")) return set_columns(job, "sentence1", "sentence2");
  std::erase_if(columns, [](const std::string& name) { return name == "label" || name == "idx" || name == "id"; });
  if (columns.empty())
    return job.remark(
        "The columns of a text, of a second text and of its class are text, text_pair and label; "
        "data.text.columns names others.");
  set_columns(job, columns[0], columns.size() > 1 ? columns[1] : "");
}

void set_glue(Moving& job, const std::string& name) {
  const auto task = std::ranges::find(kGlue, std::string_view(name), &GlueTask::name);
  if (task == kGlue.end()) return;
  set_data(job, "train", "nyu-mll/glue", "train", name, "");
  set_data(job, "val", "nyu-mll/glue", name == "mnli" ? "validation_matched" : "validation", name, "");
  set_columns(job, task->text, task->pair);
  if (name == "stsb") job.set("task.type", "regression");
}

/// Sets data.train and data.val.
void set_files(Moving& job, const Script* script) {
  const std::string configuration =
      job.has("dataset_config_name") ? job.text("dataset_config_name") : job.text("dataset_config");
  const bool has_classes = job.value_of("model.config.head") == "classifier";
  if (job.has("train_file")) {
    set_data(job, "train", job.text("train_file"), "", "", "");
    if (has_classes && !job.has("text_column_name") && !job.has("text_column_names"))
      set_columns_of_classes(job, job.text("train_file"));
  } else if (job.has("dataset_name")) {
    set_data(job, "train", job.text("dataset_name"), "train", configuration, "");
    if (!job.has("validation_file") && !job.has("validation_split_percentage"))
      set_data(job, "val", job.text("dataset_name"), "validation", configuration, "");
  } else {
    set_glue(job, job.text("task_name"));
  }
  if (job.has("validation_file")) set_data(job, "val", job.text("validation_file"), "", "", "");
  job.otherwise("data.train.path", "train.jsonl", "a guess");
  job.otherwise("data.train.format", "jsonl", "");
  if (job.sets("data.val.path")) return;
  if (job.has("validation_split_percentage"))
    job.set("data.val.split", job.text("validation_split_percentage") + "%");
  else if (evaluates(job) || (script != nullptr && job.is_on("do_eval")))
    job.otherwise("data.val.split", "5%", "a guess");
}

void move_text_columns(Moving& job, const std::string& dotted, const Node& value) {
  if (value.text.find(',') != std::string::npos)
    return job.tell(dotted, "a text has one column, and data.text.columns.text_pair is a second text");
  const bool has_words = job.text("program").starts_with("run_ner");
  job.set_text(has_words ? "data.text.columns.words" : "data.text.columns.text", value.text);
}

void move_label_column(Moving& job, const std::string&, const Node& value) {
  const bool has_words = job.text("program").starts_with("run_ner");
  job.set_text(has_words ? "data.text.columns.tags" : "data.text.columns.label", value.text);
}

void move_tokenizer_name(Moving& job, const std::string&, const Node& value) {
  job.set("data.text.tokenizer", "published");
  job.set_text("data.text.tokenizer_path", value.text);
}

Table script_table() {
  return {
      read_later({"program", "positional", "model_name_or_path", "model_revision", "dataset_name",
                  "dataset_config_name", "dataset_config", "task_name", "train_file", "validation_file",
                  "validation_split_percentage", "checkpointing_steps"}),
      by({"tokenizer_name"}, move_tokenizer_name),
      to({"max_seq_length", "max_length", "block_size"}, "data.text.max_length"),
      to({"mlm_probability"}, "data.text.masking.fraction"),
      by({"text_column_name", "text_column_names"}, move_text_columns),
      by({"label_column_name"}, move_label_column),
      to({"num_warmup_steps"}, "lr_scheduler.warmup"),
      to({"max_train_steps"}, "train.max_steps"),
      told({"test_file"}, "`gputrain predict RUN FILE` says what the trained model makes of it"),
      told({"max_train_samples", "max_eval_samples", "max_predict_samples"},
           "all records are used: make a shorter file (head -n 1000)"),
      told({"metric_name", "return_entity_level_metrics"},
           "not needed: all metrics of the task are measured, and checkpoint.metric names that of the best checkpoint"),
      told(
          {"pad_to_max_length", "use_fast_tokenizer", "use_slow_tokenizer", "overwrite_cache", "cache_dir", "streaming",
           "preprocessing_num_workers", "keep_linebreaks", "shuffle_seed", "shuffle_train_dataset"},
          "not needed: texts are read and encoded once by each host, each epoch is shuffled by the seed, and a row has "
          "no padding on a CPU and little on a GPU"),
      told({"config_name", "config_overrides"}, "sizes come from the model's folder: change config.json there"),
      told({"ignore_mismatched_sizes", "torch_dtype", "dtype", "token", "use_auth_token"},
           "not needed: sizes come from the model's folder, and `gputrain fetch` reads HF_TOKEN"),
      told({"line_by_line"}, "records (jsonl, csv, tsv, parquet) are read one by one, and a text file as one text"),
      told({"with_tracking"}, "log.tensorboard, log.mlflow and log.wandb are trackers"),
      told({"batch_sampler"}, "batches are drawn at random from all pairs"),
      told({"multi_dataset_batch_sampler"},
           "data.train.path: '{a.jsonl,b.jsonl}' are one data set, and batches are drawn at random from all of it"),
      told({"prompts"}, "write the prompt before each text of the data"),
      told({"router_mapping"}, "one encoder reads all texts"),
      told({"learning_rate_mapping"},
           "optimizer.groups: [{match: 'head.*', lr: 0.1x}]; `gputrain describe optimizer.groups`"),
  };
}

}  // namespace

const Table& script_rows() {
  static const Table kRows = script_table();
  return kRows;
}

void finish_transformers(Moving& job) {
  const Script* script = script_of(job);
  if (const std::string file = job.text("positional"); file.ends_with(".json") || file.ends_with(".yaml"))
    throw Error(ExitCode::usage, {.what = "the arguments of " + job.text("program") + " are in " + file,
                                  .where = {},
                                  .hint = "`gputrain import " + file + "`"});
  if (script == nullptr && !job.has("model_name_or_path"))
    job.remark("TrainingArguments name neither the model nor the data: fill in model and data above.");
  set_model(job, script);
  set_files(job, script);
  if (script != nullptr && *script->longest != '\0')
    job.otherwise("data.text.max_length", script->longest, job.text("program") + "'s default");
  if (job.text("program").starts_with("run_ner"))
    job.otherwise("data.text.columns.tags", "ner_tags", "run_ner.py's default");
  if (job.text("program").starts_with("run_clm") && job.value_of("data.train.format") != "text")
    job.set("data.text.packing", "true", "run_clm.py joins texts");
  const std::string steps = job.value_of("train.max_steps");
  finish_trainer(job);
  if (!steps.empty()) job.remove("train.max_epochs");
  if (job.has("checkpointing_steps"))
    job.set("checkpoint.interval",
            job.text("checkpointing_steps") == "epoch" ? "1ep" : job.text("checkpointing_steps"));
}

}  // namespace gputrain::app::foreign

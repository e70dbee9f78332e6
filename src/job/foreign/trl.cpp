// Jobs of TRL 1: the files and the command lines of `trl sft`, `dpo`, `kto`, `orpo` and `reward`.
#include <array>
#include <fstream>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;

const std::string kTrl = "TRL's default";

void move_datasets(Moving& job, const std::string& dotted, const Node& value) {
  move_data_list(job, dotted, value, "train", [](Moving& one, const Node& data, const std::string& place) {
    for (const char* key : {"data_dir", "fraction"})
      if (const std::string given = text_in(data, key); !given.empty())
        one.tell(place + "." + key, given, "all of " + one.value_of("data.train.path") + " is read");
  });
}

void move_test_split_size(Moving& job, const std::string& dotted, const Node&) {
  job.set("data.val.split", fmt::format("{:g}%", job.number(dotted, 0) * 100));
}

void move_dataset_text_field(Moving& job, const std::string&, const Node& value) {
  if (value.text != "text") job.set_text("data.text.columns.text", value.text);
}

void move_chat_template_path(Moving& job, const std::string& dotted, const Node& value) {
  set_chat_template(job, dotted, value.text);
}

Table trl_table() {
  return {
      read_later({"model_name_or_path",
                  "model_revision",
                  "dataset_name",
                  "dataset_config",
                  "dataset_train_split",
                  "dataset_test_split",
                  "use_peft",
                  "lora_r",
                  "lora_alpha",
                  "lora_dropout",
                  "lora_target_modules",
                  "lora_modules_to_save",
                  "beta",
                  "loss_type",
                  "completion_only_loss",
                  "assistant_only_loss",
                  "disable_dropout",
                  "load_in_4bit",
                  "load_in_8bit",
                  "bnb_4bit_quant_type",
                  "use_bnb_nested_quant",
                  "positional",
                  "program",
                  "gradient_checkpointing",
                  "eval_packing"}),
      by({"datasets"}, move_datasets),
      by({"test_split_size"}, move_test_split_size),
      told({"dataset_streaming", "streaming", "dataset_num_proc", "dataset_kwargs", "shuffle_dataset",
            "packing_strategy", "pad_to_multiple_of", "pad_token", "padding_value", "dataset_batch_size",
            "num_of_sequences", "chars_per_token", "label_pad_token_id"},
           "not needed: texts are read and encoded once by each host, shuffled by the seed, and long ones cut"),
      words({"truncation_mode"}, "", {{"keep_start", ""}}, "the begin of a long text is kept, and its end cut"),
      by({"dataset_text_field"}, move_dataset_text_field),
      to({"max_length", "max_seq_length"}, "data.text.max_length"),
      told({"use_liger", "use_liger_loss", "use_logits_to_keep"}, "not needed: kernels for the same are always used"),
      told({"force_use_ref_model", "model_adapter_name", "ref_adapter_name"},
           "not needed: the reference is the model before training"),
      told({"max_prompt_length", "max_completion_length", "max_target_length"},
           "a prompt and its answer are cut after data.text.max_length"),
      flag({"packing"}, "data.text.packing", "true"),
      by({"chat_template_path"}, move_chat_template_path),
      told({"eos_token"}, "not needed: the end of a turn is what the chat template writes"),
      told({"dtype", "torch_dtype"},
           "not needed: weights are kept in fp32, and precision says how products are computed"),
      told({"model_init_kwargs", "bnb_4bit_quant_storage", "lora_task_type", "ignore_bias_buffers",
            "cast_lm_head_to_fp32", "is_encoder_decoder"},
           "not needed: the model's folder says what it is"),
      told({"router_aux_loss_coef"}, "router_aux_loss_coef in config.json of the model's folder says it"),
      told({"lora_target_parameters"}, "no such adapter here: `gputrain describe adapter lora`"),
      flag({"use_rslora"}, "model.adapter.rslora", "true"),
      flag({"use_dora"}, "model.adapter.dora", "true"),
      told({"label_smoothing", "loss_weights", "ld_alpha", "f_divergence_type", "f_alpha_divergence_coef",
            "use_weighting", "discopop_tau", "sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps",
            "rpo_alpha", "reference_free"},
           "no such option here: `gputrain describe task dpo`"),
      told({"precompute_ref_log_probs", "precompute_ref_batch_size"},
           "not needed: what the reference says is computed once, before the first step"),
      told({"generate_during_eval"}, "eval.sample writes what the model says while it learns"),
      to({"desirable_weight"}, "task.config.desirable_weight"),
      to({"undesirable_weight"}, "task.config.undesirable_weight"),
      to({"center_rewards_coefficient"}, "task.config.center"),
      to({"simpo_gamma"}, "task.config.gamma"),
      told({"cpo_alpha"}, "no such option here: `gputrain describe task simpo`"),
      told({"config", "config_file", "accelerate_config", "num_processes"},
           "`gputrain launch --nproc-per-node 8 run JOB` starts the ranks"),
  };
}

/// Returns whether the first record of a file has a prompt.
bool begins_with_prompt(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  return std::getline(stream, line) && line.find("\"prompt\"") != std::string::npos;
}

void finish_base(Moving& job) {
  std::string model = job.text("model_name_or_path");
  if (model.empty())
    throw Error(ExitCode::usage, {.what = "model_name_or_path is missing", .hint = "it says which model is trained"});
  if (job.has("model_revision") && job.text("model_revision") != "main") model += "@" + job.text("model_revision");
  set_language_model(job, model);
  if (!job.sets("data.train.path")) {
    if (!job.has("dataset_name"))
      throw Error(ExitCode::usage, {.what = "dataset_name is missing", .hint = "it says what the model learns from"});
    set_data(job, "train", job.text("dataset_name"), job.text("dataset_train_split"), job.text("dataset_config"), "");
  }
  const std::string evaluates = job.text("eval_strategy");
  if (!evaluates.empty() && evaluates != "no" && !job.sets("data.val.split")) {
    const std::string held_out = job.has("dataset_test_split") ? job.text("dataset_test_split") : "test";
    if (job.has("dataset_name") && job.value_of("data.train.format") == "parquet" &&
        job.value_of("data.train.path").find("/train/") != std::string::npos)
      set_data(job, "val", job.text("dataset_name"), held_out, job.text("dataset_config"), "");
    else
      job.tell("dataset_test_split", "give its file as data.val.path, or hold a share out: data.val: {split: 5%}");
  }
  if (!job.is_on("use_peft")) {
    for (const char* part : {"rslora", "dora"}) job.remove(std::string("model.adapter.") + part);
    return;
  }
  job.set("model.adapter.type", "lora");
  const auto given = [&](const char* theirs, const char* fallback) {
    return job.has(theirs) ? job.text(theirs) : fallback;
  };
  const auto note = [&](const char* theirs) { return job.has(theirs) ? std::string() : kTrl; };
  job.set("model.adapter.rank", given("lora_r", "16"), note("lora_r"));
  job.set("model.adapter.alpha", given("lora_alpha", "32"), note("lora_alpha"));
  job.set("model.adapter.dropout", given("lora_dropout", "0.05"), note("lora_dropout"));
  for (const auto& [theirs, ours] :
       {std::pair("lora_target_modules", "target_modules"), {"lora_modules_to_save", "modules_to_save"}}) {
    const Node* names = job.given(theirs);
    if (names == nullptr) continue;
    Node bare = *names;
    bare.key.clear();
    job.set(std::string("model.adapter.") + ours, config::to_flow(bare));
  }
  job.otherwise("model.adapter.target_modules", "[q_proj, v_proj]", "PEFT's default for most models");
  if (job.is_on("load_in_4bit")) {
    job.set("model.quantize.type", given("bnb_4bit_quant_type", "nf4"));
    job.set("model.quantize.double", job.is_on("use_bnb_nested_quant") ? "true" : "false");
  } else if (job.is_on("load_in_8bit")) {
    job.set("model.quantize.type", "int8");
  }
}

void finish(Moving& job, const std::string& task, const std::string& lr) {
  finish_base(job);
  if (!task.empty()) {
    job.set("task.type", task);
    if (job.has("beta")) job.set("task.config.beta", job.text("beta"));
    const bool drops = job.has("disable_dropout") && !job.is_on("disable_dropout");
    if (!drops && job.sets("model.adapter.dropout"))
      job.set("model.adapter.dropout", "0", "disable_dropout is TRL's default");
  }
  job.otherwise("optimizer.lr", lr, job.has("learning_rate") ? "" : kTrl);
  job.otherwise("data.text.max_length", "1024", kTrl);
  if (!job.has("gradient_checkpointing") || job.is_on("gradient_checkpointing"))
    job.set("train.activation_checkpointing", "block", job.has("gradient_checkpointing") ? "" : kTrl);
  job.otherwise("log.interval", "10", kTrl);
  if (!job.has("bf16") && !job.is_on("fp16")) job.set("precision", "bf16", kTrl);
  finish_trainer(job);
}

}  // namespace

const Table& trl_rows() {
  static const Table kRows = trl_table();
  return kRows;
}

void finish_trl_sft(Moving& job) {
  finish(job, "", "2e-5");
  if (job.is_on("assistant_only_loss")) {
    job.set("data.text.loss_on", "assistant");
  } else if (job.is_on("completion_only_loss")) {
    job.set("data.text.loss_on", "completion");
  } else if (job.has("completion_only_loss") || !begins_with_prompt(job.text("dataset_name"))) {
    job.set("data.text.loss_on", "all", "as TRL; leave it out to learn answers alone");
  }
  if (job.has("loss_type") && job.text("loss_type") != "nll" && job.text("loss_type") != "chunked_nll")
    job.tell("loss_type", "the loss is the usual one, nll");
}

void finish_trl_dpo(Moving& job) {
  finish(job, "dpo", "1e-6");
  const Node* loss = job.given("loss_type");
  if (loss == nullptr) return;
  const std::string name =
      loss->kind == Node::Kind::list && !loss->parts.empty() ? loss->parts.front().text : loss->text;
  if (loss->parts.size() > 1) job.tell("loss_type", "the first of them: losses are not mixed");
  if (name == "hinge" || name == "ipo")
    job.set("task.config.loss", name);
  else if (name != "sigmoid")
    job.tell("loss_type", "`gputrain describe task dpo` has the losses");
}

void finish_trl_kto(Moving& job) { finish(job, "kto", "1e-6"); }
void finish_trl_orpo(Moving& job) { finish(job, "orpo", "1e-6"); }

void finish_trl_reward(Moving& job) {
  finish(job, "reward", "1e-4");
  set_reward_head(job);
}

}  // namespace gputrain::app::foreign

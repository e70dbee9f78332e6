// Jobs of LLaMA-Factory 0.9.
#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, comma - begin);
    while (part.starts_with(' ')) part.erase(0, 1);
    if (!part.empty()) parts.push_back(part);
    begin = comma + 1;
  }
  return parts;
}

std::string in_list(const std::vector<std::string>& names) {
  std::string list = "[";
  for (const std::string& name : names) list += (list.size() > 1 ? ", " : "") + name;
  return list + "]";
}

/// Sets the columns and the place of a data set by its entry in dataset_info.json.
void set_registered(DataSet& one, const std::string& role, const nlohmann::json& entry, const std::string& folder) {
  Moving& job = one.moved;
  const auto text = [&](const char* key) { return entry.value(key, std::string()); };
  const std::string hub = text("hf_hub_url").empty() ? text("ms_hub_url") : text("hf_hub_url");
  const std::string name = text("file_name").empty() ? hub : folder + "/" + text("file_name");
  set_data(job, role, name, text("split"), text("subset"), "");
  if (entry.contains("num_samples"))
    job.tell(one.place + ".num_samples", entry["num_samples"].dump(), "all records of a file are used, each once");
  if (role != "train" || !entry.contains("columns") || !entry["columns"].is_object()) return;
  constexpr std::array<std::pair<const char*, const char*>, 3> kColumns{
      {{"messages", "messages"}, {"chosen", "chosen"}, {"rejected", "rejected"}}};
  const auto& columns = entry["columns"];
  for (const auto& [theirs, ours] : kColumns) {
    const std::string column = columns.value(theirs, std::string());
    const bool is_usual = column == ours || (std::string_view(ours) == "messages" && column == "conversations");
    if (!column.empty() && !is_usual) job.set_text(std::string("data.text.columns.") + ours, column);
  }
  const std::string asked = columns.value("prompt", std::string()), answer = columns.value("response", std::string());
  const bool is_alpaca = (asked.empty() || asked == "instruction") && (answer.empty() || answer == "output");
  if (text("formatting") == "sharegpt" && entry.value("ranking", false)) {
    job.remove("data.text.columns.messages");
    job.set_text("data.text.columns.prompt", columns.value("messages", std::string("conversations")));
  }
  if (is_alpaca || text("formatting") == "sharegpt") return;
  if (!asked.empty()) job.set_text("data.text.columns.prompt", asked);
  if (!answer.empty()) job.set_text("data.text.columns.completion", answer);
}

void move_data_set(Moving& job, const std::string& dotted, const Node& value) {
  std::vector<std::string> names = split(value.text);
  for (const Node& part : value.parts) names.push_back(part.text);
  if (names.empty()) return;
  const std::string role = dotted == "eval_dataset" ? "val" : "train";
  const std::string folder = job.has("dataset_dir") ? job.text("dataset_dir") : "data";
  const std::string registry = folder + "/dataset_info.json";
  std::error_code ignored;
  const auto known = std::filesystem::is_regular_file(registry, ignored) ? parse_json_file(registry) : nlohmann::json();
  std::vector<DataSet> sets;
  for (const std::string& name : names) {
    DataSet one{.place = dotted + "[" + std::to_string(sets.size()) + "]", .theirs = name, .moved = job.apart()};
    if (known.is_object() && known.contains(name)) {
      set_registered(one, role, known.at(name), folder);
    } else {
      set_data(one.moved, role, folder + "/" + name + ".json", "", "", "json");
      one.moved.remark("No " + registry + " says which file " + name + " is: its place in data." + role +
                       ".path is a guess.");
    }
    sets.push_back(std::move(one));
  }
  set_data_sets(job, role, sets);
}

void move_stage(Moving& job, const std::string& dotted, const Node& value) {
  const std::string stage = value.text;
  if (stage == "ppo")
    throw Error(ExitCode::usage,
                {.what = "gputrain does not train with PPO, where a model writes answers that another judges",
                 .where = dotted + ": ppo",
                 .hint = "it learns from answers that exist: task.type dpo, kto, orpo, simpo or reward"});
  if (stage == "rm") {
    job.set("task.type", "reward");
  } else if (stage == "dpo" || stage == "kto") {
    job.set("task.type", stage);
  } else if (stage == "pt") {
    job.set("data.text.loss_on", "all");
  }
}

void move_model_name_or_path(Moving& job, const std::string&, const Node& value) {
  set_language_model(job, value.text);
}

void move_model_revision(Moving& job, const std::string&, const Node& value) {
  if (value.text != "main") job.set_text("model.pretrained", job.text("model_name_or_path") + "@" + value.text);
}

void move_double_quantization(Moving& job, const std::string&, const Node& value) {
  if (is_off(value) && job.text("quantization_bit") == "4") job.set("model.quantize.double", "false");
}

void move_template(Moving& job, const std::string& dotted, const Node& value) {
  set_chat_template(job, dotted, value.text);
}

Table llama_factory_table() {
  return {
      by({"model_name_or_path"}, move_model_name_or_path),
      by({"model_revision"}, move_model_revision),
      by({"stage"}, move_stage),
      read_later({"finetuning_type", "lora_rank", "lora_alpha", "lora_target", "additional_target", "pissa_init",
                  "pref_loss", "pure_bf16", "adapter_name_or_path", "quantization_type",
                  "disable_gradient_checkpointing", "packing", "neat_packing"}),
      read_later({"pissa_iter"}, "model.adapter.init, which is pissa_niter_16, or pissa where pissa_iter is -1"),
      read_later({"pref_beta"}, "task.config.beta, with task.type: dpo, kto, orpo or simpo"),
      to({"lora_dropout"}, "model.adapter.dropout"),
      flag({"use_rslora"}, "model.adapter.rslora", "true"),
      flag({"use_dora"}, "model.adapter.dora", "true"),
      by({"loraplus_lr_ratio"}, move_lora_plus),
      told({"loraplus_lr_embedding"}, "embeddings have no adapter here"),
      told({"pissa_convert"}, "not needed: the adapter's file is plain LoRA for PEFT"),
      told({"create_new_adapter"}, "not needed: without model.adapter.pretrained the adapter is new"),
      words({"quantization_bit"}, "model.quantize.type", {{"4", "nf4"}, {"8", "int8"}},
            "weights are kept in 4 or 8 bits: model.quantize.type: nf4 or int8"),
      words({"quantization_method"}, "", {{"bnb", ""}, {"bitsandbytes", ""}, {"BNB", ""}},
            "weights are quantised as bitsandbytes does"),
      by({"double_quantization"}, move_double_quantization),
      told({"quantization_device_map"}, "not needed"),
      by({"dataset", "eval_dataset"}, move_data_set),
      told({"dataset_dir", "media_dir"}, "the folder is in data.train.path"),
      by({"template"}, move_template),
      to({"cutoff_len"}, "data.text.max_length"),
      flag({"train_on_prompt"}, "data.text.loss_on", "all"),
      flag({"mask_history"}, "data.text.loss_on", "completion"),
      by({"val_size"}, move_held_out),
      told({"max_samples"}, "all records are used: make a shorter file (head -n 1000), or end by train.max_steps"),
      told({"overwrite_cache", "preprocessing_*", "tokenized_path", "streaming", "buffer_size", "cache_dir",
            "ignore_pad_token_for_loss", "use_fast_tokenizer"},
           "not needed: texts are read and encoded once by each host"),
      told({"split_special_tokens"}, "a special token in a text is one token here"),
      words({"mix_strategy"}, "", {{"concat", ""}}, "an epoch has every record of all data sets once, as with concat"),
      told({"interleave_probs"}, "an epoch has every record of all data sets once"),
      told({"eval_on_each_dataset"}, "all data sets of data.val are evaluated as one"),
      told({"tool_format", "enable_thinking", "reasoning_effort", "default_system"},
           "the chat template of the model's folder writes tools and thoughts; data.text.chat_template_kwargs are its "
           "variables"),
      told({"resize_vocab", "add_tokens", "add_special_tokens", "new_special_tokens_config", "init_special_tokens"},
           "no token is added: the tokenizer and the embeddings are those of the model's folder"),
      told({"rope_scaling", "mixture_of_depths", "moe_aux_loss_coef", "train_from_scratch"},
           "the model is that of its folder: change config.json there"),
      told({"use_unsloth", "use_unsloth_gc", "use_v1_kernels", "use_reentrant_gc", "upcast_layernorm",
            "upcast_lmhead_output", "print_param_status", "use_kv_cache", "offload_folder"},
           "not needed: kernels for the same are always used"),
      told({"infer_*", "export_*", "vllm_*", "sglang_*", "kt_*", "use_kt", "cpu_infer", "chunk_size", "eval_num_beams"},
           "`gputrain generate`, `gputrain eval RUN --suite FILE` and `gputrain export` take a run"),
      told({"hf_hub_token", "ms_hub_token", "om_hub_token"}, "`gputrain fetch` reads HF_TOKEN"),
      told({"image_*", "video_*", "audio_*", "crop_to_patches", "use_audio_in_video", "freeze_vision_tower",
            "freeze_multi_modal_projector", "freeze_language_model"},
           "language models read texts alone here"),
      told({"fp8*"}, "products are in 16 bits at least: precision: bf16"),
      told({"use_galore", "galore_*", "use_apollo", "apollo_*", "use_badam", "badam_*", "use_adam_mini", "use_muon",
            "use_lomo"},
           "no such update rule here: `gputrain list optimizers`; adamw8bit and parallel.shard: optimizer save memory"),
      told({"use_llama_pro", "freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"},
           "model.freeze: ['*', '!blocks.30.*', '!blocks.31.*'] trains two blocks alone, by patterns of names"),
      told({"oft_*", "module_dropout"}, "the adapters here are LoRA and DoRA"),
      to_option({"kto_chosen_weight"}, "kto", "task.config.desirable_weight"),
      to_option({"kto_rejected_weight"}, "kto", "task.config.undesirable_weight"),
      told({"pref_ftx", "pref_bco_weight", "dpo_label_smoothing", "ld_alpha"},
           "no such option here: `gputrain describe task dpo`"),
      read_later({"simpo_gamma"}),
      told({"ref_model", "ref_model_*"}, "the reference is the model before training"),
      told({"reward_model", "reward_model_*", "ppo_*"}, "gputrain does not train with PPO"),
      told({"use_dft_loss", "use_eaft_loss", "eaft_*", "use_asft_loss", "asft_*", "dft_*"},
           "gputrain does not train so"),
      told({"compute_accuracy", "include_effective_tokens_per_second", "disable_shuffling", "early_stopping_steps",
            "predict_with_generate", "generation_*", "max_new_tokens", "top_p", "top_k", "temperature", "num_beams",
            "do_sample", "length_penalty", "repetition_penalty", "skip_special_tokens", "use_mca", "ray_*",
            "master_addr", "master_port"},
           "`gputrain eval` and `gputrain generate` take a run; `gputrain launch` starts the ranks"),
      told({"max_steps_per_epoch"}, "train.max_steps ends the training"),
  };
}

void finish_adapter(Moving& job) {
  const std::string type = job.has("finetuning_type") ? job.text("finetuning_type") : "lora";
  if (type != "lora") {
    if (type != "full")
      job.tell("finetuning_type", "without a line about it, all weights are trained; model.freeze leaves some out");
    for (const char* part : {"dropout", "rslora", "dora"}) job.remove(std::string("model.adapter.") + part);
    if (job.sets("model.quantize.type")) {
      job.remove("model.quantize.type");
      job.tell("quantization_bit", "not used: without an adapter all weights are trained");
    }
    return;
  }
  const std::string tool = "LLaMA-Factory's default";
  job.set("model.adapter.type", "lora");
  const double rank = job.number("lora_rank", 8);
  job.set("model.adapter.rank", fmt::format("{:g}", rank), job.has("lora_rank") ? "" : tool);
  job.set("model.adapter.alpha", fmt::format("{:g}", job.number("lora_alpha", 2 * rank)),
          job.has("lora_alpha") ? "" : tool);
  const std::string target = job.has("lora_target") ? job.text("lora_target") : "all";
  job.set("model.adapter.target_modules", target == "all" || target.empty() ? "all-linear" : in_list(split(target)));
  if (job.has("additional_target"))
    job.set("model.adapter.modules_to_save", in_list(split(job.text("additional_target"))));
  if (job.is_on("pissa_init")) {
    const std::string rounds = job.has("pissa_iter") ? job.text("pissa_iter") : "16";
    job.set("model.adapter.init", rounds == "-1" ? "pissa" : "pissa_niter_16");
    if (rounds != "-1" && rounds != "16") job.tell("pissa_iter", "16 rounds");
  }
  if (job.has("adapter_name_or_path"))
    job.set_text("model.adapter.pretrained", split(job.text("adapter_name_or_path")).front());
  if (job.has("quantization_type") && job.sets("model.quantize.type"))
    job.set("model.quantize.type", job.text("quantization_type"));
}

void finish_preferences(Moving& job) {
  if (job.value_of("task.type") != "dpo" && job.value_of("task.type") != "kto") return;
  const std::string loss = job.has("pref_loss") ? job.text("pref_loss") : "sigmoid";
  if (job.value_of("task.type") == "dpo") {
    if (loss == "orpo" || loss == "simpo")
      job.set("task.type", loss);
    else if (loss == "hinge" || loss == "ipo")
      job.set("task.config.loss", loss);
    else if (loss != "sigmoid")
      job.tell("pref_loss", "`gputrain describe task dpo` has the losses");
  }
  job.set("task.config.beta", job.has("pref_beta") ? job.text("pref_beta") : "0.1",
          job.has("pref_beta") ? "" : "LLaMA-Factory's default");
  if (job.value_of("task.type") == "simpo")
    job.set("task.config.gamma", job.has("simpo_gamma") ? job.text("simpo_gamma") : "0.5");
}

}  // namespace

const Table& llama_factory_rows() {
  static const Table kRows = llama_factory_table();
  return kRows;
}

void finish_llama_factory(Moving& job) {
  if (!job.has("model_name_or_path"))
    throw Error(ExitCode::usage, {.what = "model_name_or_path is missing", .hint = "it says which model is trained"});
  finish_adapter(job);
  finish_preferences(job);
  if (job.text("stage") == "rm") set_reward_head(job);
  if (job.text("stage") == "pt" || job.is_on("packing") || job.is_on("neat_packing"))
    job.set("data.text.packing", "true");
  if (job.is_on("packing") && !job.is_on("neat_packing") && job.text("stage") != "pt")
    job.tell("packing", "as with neat_packing: a text in a shared row sees itself alone");
  if (job.value_of("task.type").empty()) job.otherwise("data.text.loss_on", "assistant", "");
  job.otherwise("data.text.max_length", "2048", "LLaMA-Factory's default");
  if (!job.is_on("disable_gradient_checkpointing"))
    job.set("train.activation_checkpointing", "block", "LLaMA-Factory's default");
  finish_trainer(job);
  if (job.is_on("pure_bf16")) {
    job.set("precision", "bf16");
    if (!job.sets("model.adapter.type")) job.set("optimizer.master", "bf16");
  }
}

}  // namespace gputrain::app::foreign

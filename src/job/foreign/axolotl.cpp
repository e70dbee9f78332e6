// Jobs of axolotl 0.19.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;

void move_method(Moving& job, const std::string& dotted, const Node& value) {
  if (value.kind != Node::Kind::scalar) return job.tell(dotted, "no method has this name");
  const std::string method = value.text;
  if (method == "grpo" || method == "gdpo" || method == "ebft")
    throw Error(
        ExitCode::usage,
        {.what = "gputrain does not train with " + method + ", where a model writes answers that a function judges",
         .where = dotted + ": " + method,
         .hint = "it learns from answers that exist: task.type dpo, kto, orpo, simpo or reward"});
  if (method == "ipo") {
    job.set("task.type", "dpo");
    return job.set("task.config.loss", "ipo");
  }
  job.set("task.type", method);
}

void move_adapter(Moving& job, const std::string& dotted, const Node& value) {
  if (value.text == "lora" || value.text == "qlora") return job.set("model.adapter.type", "lora");
  job.tell(dotted, "the adapters here are LoRA and DoRA: model.adapter: {type: lora}");
}

/// Intervals in parts of an epoch: 4 times.
Row times_an_epoch(const std::string& name, const std::string& ours) {
  return by({name}, [ours](Moving& job, const std::string& dotted, const Node&) {
    const double times = job.number(dotted, 0);
    if (times > 0) job.set(ours, times == 1 ? "1ep" : fmt::format("{:.4g}ep", 1 / times));
  });
}

Row tracker(const std::string& name, const std::string& ours) {
  return by({name}, [ours](Moving& job, const std::string&, const Node& value) { job.set_text(ours, value.text); });
}

void move_base_model(Moving& job, const std::string&, const Node& value) { set_language_model(job, value.text); }

void move_revision_of_model(Moving& job, const std::string&, const Node& value) {
  job.set_text("model.pretrained", job.text("base_model") + "@" + value.text);
}

void move_model_type(Moving& job, const std::string& dotted, const Node& value) {
  if (value.text == "AutoModelForSequenceClassification")
    job.set("model.config.head", "classifier");
  else
    job.tell(dotted, "not needed: config.json of the model says it");
}

void move_tokenizer_config(Moving& job, const std::string&, const Node& value) {
  job.set("data.text.tokenizer", "published");
  job.set_text("data.text.tokenizer_path", value.text);
}

void move_unfrozen_parameters(Moving& job, const std::string& dotted, const Node&) {
  job.tell(dotted, job.has("adapter") ? "not needed: with an adapter, the model is frozen"
                                      : "model.freeze: ['*', '!lm_head.*'] freezes all but what has a ! in "
                                        "front, by patterns of names");
}

void move_chat_template(Moving& job, const std::string& dotted, const Node& value) {
  if (!job.sets("data.text.chat_template")) set_chat_template(job, dotted, value.text);  // a data set's goes before it
}

constexpr const char* kTokensOfFolder =
    "no token is added or changed: the tokenizer and the embeddings are those of the model's folder";

void move_special_tokens(Moving& job, const std::string& dotted, const Node& value) {
  const auto is_other = [](const Node& part) { return part.key != "pad_token" && !is_off(part); };
  const bool is_padding = value.kind == Node::Kind::map && std::ranges::none_of(value.parts, is_other);
  if (!is_off(value)) job.tell(dotted, is_padding ? "not needed: padding is never learned" : kTokensOfFolder);
}

void move_chat_template_kwargs(Moving& job, const std::string& dotted, const Node&) {
  job.tell(dotted, "as JSON text: data.text.chat_template_kwargs: '{\"enable_thinking\": false}'");
}

void move_axolotl_optimizer(Moving& job, const std::string& dotted, const Node& value) {
  for (const Row& row : trainer_rows())
    if (row.names.front() == "optim") row.move(job, dotted, value);
}

void move_lr_scheduler(Moving& job, const std::string& dotted, const Node& value) {
  if (value.text == "one_cycle") return job.set("lr_scheduler.type", "onecycle");
  for (const Row& row : trainer_rows())
    if (row.names.front() == "lr_scheduler_type") row.move(job, dotted, value);
}

void move_bf16(Moving& job, const std::string&, const Node& value) {
  if (!is_off(value)) job.set("precision", "bf16");
  if (value.text == "full" && !job.is_on("adapter")) job.set("optimizer.master", "bf16");
}

void move_gradient_checkpointing(Moving& job, const std::string&, const Node& value) {
  if (is_off(value)) return;
  job.set("train.activation_checkpointing", "block");
  if (value.text.starts_with("offload")) job.set("train.offload.activations", "true");
}

void move_activation_offloading(Moving& job, const std::string&, const Node& value) {
  if (is_off(value)) return;
  job.set("train.activation_checkpointing", "block");
  job.set("train.offload.activations", "true");
}

void move_loss_watchdog_threshold(Moving& job, const std::string&, const Node& value) {
  job.set("alerts", "[{metric: train/loss, op: '>', value: " + value.text + ", for: 30s, action: stop}]");
}

void move_dp_shard_size(Moving& job, const std::string& dotted, const Node&) {
  if (job.number(dotted, 1) > 1) job.set("parallel.shard", "parameters");
}

Table axolotl_table() {
  return {
      by({"base_model"}, move_base_model),
      by({"revision_of_model", "model_revision"}, move_revision_of_model),
      by({"model_type", "type_of_model"}, move_model_type),
      told({"tokenizer_type", "tokenizer_use_fast", "tokenizer_legacy", "tokenizer_use_mistral_common",
            "tokenizer_save_jinja_files", "processor_*", "is_falcon_derived_model", "is_llama_derived_model",
            "is_mistral_derived_model", "is_qwen_derived_model", "base_model_config", "cls_model_config", "strict",
            "experimental_skip_move_to_device", "num_labels"},
           "not needed: the model's folder says it"),
      by({"tokenizer_config"}, move_tokenizer_config),
      told({"overrides_of_model_config", "overrides_of_model_kwargs", "model_quantization_config*", "use_onebitllms"},
           "sizes come from the model's folder; change config.json there"),
      flag({"load_in_4bit"}, "model.quantize.type", "nf4"),
      flag({"load_in_8bit"}, "model.quantize.type", "int8"),
      told({"bnb_config_kwargs", "gptq", "qlora_sharded_model_loading", "lora_on_cpu", "quantize_moe_experts",
            "peft_autocast_adapter_dtype"},
           "not needed: `gputrain describe packing nf4` has the options of a quantised base"),
      by({"adapter"}, move_adapter),
      to({"lora_r"}, "model.adapter.rank"),
      to({"lora_alpha"}, "model.adapter.alpha"),
      to({"lora_dropout"}, "model.adapter.dropout"),
      to({"lora_target_modules"}, "model.adapter.target_modules"),
      flag({"lora_target_linear"}, "model.adapter.target_modules", "all-linear"),
      to({"lora_modules_to_save"}, "model.adapter.modules_to_save"),
      to({"lora_model_dir"}, "model.adapter.pretrained"),
      flag({"peft_use_dora"}, "model.adapter.dora", "true"),
      flag({"peft_use_rslora"}, "model.adapter.rslora", "true"),
      words({"peft_init_lora_weights"}, "model.adapter.init",
            {{"true", ""},
             {"True", ""},
             {"gaussian", "gaussian"},
             {"pissa", "pissa"},
             {"pissa_niter_16", "pissa_niter_16"},
             {"olora", "olora"}},
            "no such start of an adapter here: `gputrain describe adapter lora`"),
      by({"loraplus_lr_ratio"}, move_lora_plus),
      told({"lora_rank_pattern", "lora_alpha_pattern"}, "model.adapter.groups: [{match: q_proj, rank: 16, alpha: 32}]"),
      told({"lora_fan_in_fan_out", "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"},
           "not needed: the layout of a layer is known, and its products are fused where that is faster"),
      told(
          {"peft*", "loraplus_lr_embedding", "lora_target_parameters", "relora*", "lisa_*", "jagged_*", "merge_method"},
          "no such adapter here: `gputrain describe adapter lora`"),
      flag({"merge_lora"}, "model.adapter.merge", "true"),
      by({"unfrozen_parameters"}, move_unfrozen_parameters),
      by({"datasets", "pretraining_dataset", "test_datasets"}, move_axolotl_data),
      by({"val_set_size"}, move_held_out),
      told({"dataset_prepared_path", "dataset_processes", "dataset_num_proc", "skip_prepare_dataset",
            "num_dataset_shards_to_save", "dataset_keep_in_memory", "shuffle_merged_datasets",
            "shuffle_before_merging_datasets", "preprocess_*", "is_preprocess", "push_dataset_to_hub", "streaming*",
            "pretrain_multipack_*", "pretraining_sample_concatenation", "multipack_real_batches", "batch_flattening"},
           "not needed: texts are read and encoded once by each host, and each epoch is shuffled by the seed"),
      told({"curriculum_sampling"}, "each epoch is shuffled by the seed"),
      told({"dataset_shard_*"}, "all of the data is read: make a file of that part alone"),
      told({"dataset_exact_deduplication"}, "texts are not compared: remove doubles from the file"),
      to({"sequence_len"}, "data.text.max_length"),
      flag({"sample_packing"}, "data.text.packing", "true"),
      told({"eval_sample_packing", "pad_to_sequence_len", "pad_to_multiple_of", "sample_packing_*", "group_by_length",
            "eval_sequence_len", "total_num_tokens", "total_supervised_tokens"},
           "not needed: a row has no padding on a CPU and little on a GPU, and evaluation packs as training does"),
      told({"excess_length_strategy", "min_sample_len", "max_prompt_len"},
           "texts longer than data.text.max_length are cut, with a warning"),
      flag({"train_on_inputs"}, "data.text.loss_on", "all"),
      by({"chat_template", "chat_template_jinja"}, move_chat_template),
      by({"chat_template_kwargs"}, move_chat_template_kwargs),
      by({"special_tokens"}, move_special_tokens),
      told({"tokens", "added_tokens_overrides"}, kTokensOfFolder),
      told({"eot_tokens", "resize_token_embeddings_to_32x", "mean_resizing_embeddings", "shrink_embeddings",
            "embeddings_skip_upcast", "fix_untrained_tokens"},
           "not needed: padding is never learned, the end of a turn is what the chat template writes, and no token is "
           "added"),
      told({"default_system_message"},
           "a system message stands in the data, or in a .jinja file as "
           "data.text.chat_template"),
      to({"micro_batch_size"}, "train.micro_batch_size"),
      to({"eval_batch_size"}, "eval.batch_size"),
      told({"batch_size"}, "micro_batch_size and gradient_accumulation_steps say it"),
      to({"num_epochs"}, "train.max_epochs"),
      by({"optimizer"}, move_axolotl_optimizer),
      by({"lr_scheduler"}, move_lr_scheduler),
      read_later(
          {"cosine_min_lr_ratio"},
          "lr_scheduler.min_lr, which is cosine_min_lr_ratio times learning_rate, with lr_scheduler.type: cosine"),
      told({"cosine_constant_lr_ratio", "lr_quadratic_warmup", "lr_div_factor"},
           "no such option here: `gputrain describe lr_scheduler cosine`"),
      told({"lr_groups", "embedding_lr", "embedding_lr_scale"},
           "optimizer.groups: [{match: 'embedding.*', lr: 0.1x}]; `gputrain describe optimizer.groups`"),
      told({"adam_beta3", "adam_epsilon2", "dion_*", "qgalore_*", "torchdistx_path"},
           "no such update rule here: `gputrain list optimizers`"),
      by({"bf16"}, move_bf16),
      flag({"bfloat16"}, "precision", "bf16"),
      flag({"float16"}, "precision", "fp16"),
      told({"float32"}, "not needed: precision: fp32 is the default"),
      told({"fp8*"}, "products are in 16 bits at least: precision: bf16"),
      by({"gradient_checkpointing"}, move_gradient_checkpointing),
      by({"activation_offloading"}, move_activation_offloading),
      told({"layer_offloading", "selective_checkpointing*", "tiled_mlp*", "ple_cpu_offload"},
           "memory is saved by train.activation_checkpointing, train.offload and parallel.shard; `gputrain plan` "
           "compares them"),
      times_an_epoch("evals_per_epoch", "eval.interval"),
      times_an_epoch("saves_per_epoch", "checkpoint.interval"),
      to({"early_stopping_patience"}, "eval.early_stopping.patience"),
      by({"loss_watchdog_threshold"}, move_loss_watchdog_threshold),
      told({"loss_watchdog_patience"}, "alerts[].for says how long the loss must be too high, in time"),
      by({"rl"}, move_method),
      flag({"reward_model"}, "task.type", "reward"),
      told({"process_reward_model"}, "rewards are of whole answers here"),
      read_later({"rl_beta", "dpo_beta"}, "task.config.beta, with task.type: dpo, kto or simpo"),
      to_option({"orpo_alpha"}, "orpo", "task.config.beta"),
      to_option({"simpo_gamma"}, "simpo", "task.config.gamma"),
      told({"cpo_alpha", "rpo_alpha", "dpo_use_weighting", "dpo_label_smoothing", "dpo_loss_weights", "dpo_norm_loss"},
           "no such option here: `gputrain describe task dpo`"),
      words({"dpo_loss_type"}, "task.config.loss", {{"sigmoid", "sigmoid"}, {"hinge", "hinge"}, {"ipo", "ipo"}},
            "`gputrain describe task dpo` has the losses"),
      told({"precompute_ref_log_probs", "dpo_use_liger_kernel", "dpo_padding_free", "dpo_use_logits_to_keep"},
           "not needed: what the reference says is computed once, before the first step"),
      to_option({"kto_desirable_weight"}, "kto", "task.config.desirable_weight"),
      to_option({"kto_undesirable_weight"}, "kto", "task.config.undesirable_weight"),
      to_option({"center_rewards_coefficient"}, "reward", "task.config.center"),
      told({"dpo_generate_during_eval", "eval_table_size", "eval_table_max_new_tokens", "eval_max_new_tokens",
            "do_causal_lm_eval", "eval_causal_lm_metrics", "do_bench_eval", "bench_*", "generate_samples",
            "num_generation_samples", "generation_*"},
           "eval.sample writes what the model says while it learns; `gputrain eval RUN --suite FILE` asks questions"),
      to({"noisy_embedding_alpha"}, "model.config.neftune_alpha"),
      flag({"use_wandb"}, "log.wandb", "{}"),
      tracker("wandb_project", "log.wandb.project"),
      tracker("wandb_entity", "log.wandb.entity"),
      tracker("wandb_name", "log.wandb.name"),
      words({"wandb_mode"}, "log.wandb.mode", {{"online", "online"}, {"offline", "offline"}, {"", ""}},
            "a job without log.wandb writes nothing for Weights & Biases"),
      told({"wandb_run_id", "wandb_watch", "wandb_log_model"},
           "log.wandb shows curves and settings, and goes on in its own run after a resume"),
      flag({"use_tensorboard"}, "log.tensorboard", "true"),
      flag({"use_mlflow"}, "log.mlflow", "{}"),
      tracker("mlflow_tracking_uri", "log.mlflow.uri"),
      tracker("mlflow_experiment_name", "log.mlflow.experiment"),
      tracker("mlflow_run_name", "log.mlflow.run_name"),
      told({"hf_mlflow_log_artifacts"}, "MLflow gets curves and settings"),
      told({"use_otel_metrics", "otel_*"}, "log.metrics_port serves the measurements for Prometheus"),
      to({"tensor_parallel_size"}, "parallel.tensor"),
      to({"context_parallel_size", "sequence_parallel_degree"}, "parallel.context"),
      told({"heads_k_stride", "ring_attn_func"}, "not needed: ranks gather keys and values"),
      to({"dp_replicate_size"}, "parallel.replicate"),
      by({"dp_shard_size"}, move_dp_shard_size),
      told({"use_ray", "ray_*", "resources_per_worker"}, "`gputrain launch` starts the ranks, over ssh or by Slurm"),
      told({"plugins"}, "plug-ins of axolotl are Python; kernels for the same are built in here"),
      told({"trainer_cls", "profiler_steps*", "gradio_*", "axolotl_config_path", "capabilities", "env_capabilities",
            "dynamic_checkpoint*", "reinit_weights", "deepcompile", "expert_parallel_size", "experts_implementation",
            "scaling_softmax*", "llama4_linearized_experts", "freeze_mm_modules", "image_*", "role_boundaries"},
           "nothing here does this"),
      told({"use_pose", "pose_*", "use_eaft", "eaft_*", "use_dft", "qat*", "quantization*", "rope_scaling",
            "max_packed_sequence_len", "gemma4_hybrid_attn_impl", "vllm*", "trl*", "ebft*", "use_dynamic_finetuning"},
           "gputrain does not train so"),
      told({"router_aux_loss_coef"}, "router_aux_loss_coef in config.json of the model's folder says it"),
      told({"debug"}, "not needed: `gputrain data show JOB` shows what is learned"),
  };
}

}  // namespace

const Table& axolotl_rows() {
  static const Table kRows = axolotl_table();
  return kRows;
}

void finish_axolotl(Moving& job) {
  if (!job.has("base_model"))
    throw Error(ExitCode::usage, {.what = "base_model is missing", .hint = "it says which model is trained"});
  if (job.has("adapter") && !job.sets("model.adapter.target_modules"))
    job.otherwise("model.adapter.target_modules", "all-linear", "");
  if (!job.is_on("adapter") && job.sets("model.quantize.type")) {
    job.remove("model.quantize.type");
    job.tell(job.is_on("load_in_4bit") ? "load_in_4bit" : "load_in_8bit",
             "not used: without an adapter all weights are trained, in 16 or 32 bits");
  }
  for (const char* part :
       {"rank", "alpha", "dropout", "target_modules", "modules_to_save", "pretrained", "dora", "rslora", "init"})
    if (!job.is_on("adapter")) job.remove(std::string("model.adapter.") + part);
  const std::string method = job.value_of("task.type");
  const std::string beta = job.has("rl_beta") ? job.text("rl_beta") : job.text("dpo_beta");
  if (!beta.empty() && (method == "dpo" || method == "kto" || method == "simpo")) job.set("task.config.beta", beta);
  if (method == "reward") set_reward_head(job);
  if (method.empty() && !job.sets("data.text.loss_on")) job.set("data.text.loss_on", "assistant");
  if (job.has("cosine_min_lr_ratio") && job.value_of("lr_scheduler.type") == "cosine")
    job.set("lr_scheduler.min_lr",
            fmt::format("{:.6g}", job.number("cosine_min_lr_ratio", 0) * job.number("learning_rate", 0)));
  const std::string tool = "axolotl's default";
  job.otherwise("train.micro_batch_size", "1", tool);
  if (job.number("max_steps", -1) > 0)
    job.remove("train.max_epochs");
  else
    job.otherwise("train.max_epochs", "1", tool);
  job.otherwise("lr_scheduler.type", "cosine", tool);
  if (!job.has("warmup_steps") && !job.has("warmup_ratio")) job.set("lr_scheduler.warmup", "3%", tool);
  if (!job.sets("data.val.split") && !job.sets("data.val.path")) job.remove("eval.interval");
  const bool evaluates = job.sets("eval.interval"), saves = job.sets("checkpoint.interval");
  const std::string evaluated = job.value_of("eval.interval"), saved = job.value_of("checkpoint.interval");
  finish_trainer(job);
  if (evaluates) job.set("eval.interval", evaluated);
  if (saves)
    job.set("checkpoint.interval", saved);
  else if (!job.has("save_steps") && !job.has("save_strategy"))
    job.set("checkpoint.interval", "1ep", tool);
  job.otherwise("checkpoint.keep_last", "4", tool);
}

}  // namespace gputrain::app::foreign

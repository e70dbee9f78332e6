// Arguments of transformers' Trainer, which TRL, LLaMA-Factory and axolotl have, too: transformers 5,
// TrainingArguments.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/json.hpp"
#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;

constexpr double kLongestTimeout = 86400;  // seconds; more is meant as none

/// Steps, or with a number below 1 a share of the training.
std::string length_of(const std::string& text) {
  const Node node = Node{.kind = Node::Kind::scalar, .text = text};
  double value = 0;
  try {
    value = std::stod(node.text);
  } catch (const std::exception&) {
    return text;
  }
  return value > 0 && value < 1 ? fmt::format("{:g}%", value * 100) : fmt::format("{}", value);
}

/// Sets an interval from "no", "steps" with a number of steps, or "epoch".
void set_interval(Moving& job, const std::string& strategy, const std::string& steps, const std::string& ours,
                  const std::string& default_strategy, const std::string& default_steps) {
  std::string how = job.text(strategy);
  if (how.empty()) how = job.has(steps) && default_strategy == "no" ? "steps" : default_strategy;
  job.begin(job.names("evaluation_strategy") && strategy == "eval_strategy" ? "evaluation_strategy" : strategy);
  if (how == "epoch") job.set(ours, "1ep");
  if (how == "best") job.set(ours, job.sets("eval.interval") ? job.value_of("eval.interval") : "1ep");
  if (how == "no" || how == "False" || how == "false") job.set(ours, "null");
  if (how == "steps" && job.has(steps)) job.set(ours, length_of(job.text(steps)));
  if (how == "steps" && !job.has(steps)) job.set(ours, length_of(default_steps), "the Trainer's default");
  job.begin("");
}

void move_optimizer(Moving& job, const std::string& dotted, const Node& value) {
  const std::string ours = our_word("optimizer.type", value.text);
  if (ours.empty())
    return job.tell(dotted, "no such update rule here: `gputrain list optimizers`; the job takes adamw");
  job.set("optimizer.type", ours);
  if (value.text.starts_with("paged_"))
    job.remark("Paged state of the optimizer: train.offload: {optimizer: true} keeps it in the host's memory.");
  if (value.text.find("lion_8bit") != std::string::npos) job.tell(dotted, "lion keeps its average in fp32 here");
}

void move_report(Moving& job, const std::string& dotted, const Node& value) {
  std::vector<std::string> names;
  for (const Node& part : value.parts) names.push_back(part.text);
  if (names.empty()) names.push_back(value.text);
  for (const std::string& name : names) {
    if (name == "wandb" || name == "all") job.set("log.wandb", "{}");
    if (name == "mlflow" || name == "all") job.set("log.mlflow", "{}");
    if (name == "tensorboard" || name == "all") job.set("log.tensorboard", "true");
    constexpr std::array kKnown{"wandb", "mlflow", "tensorboard", "all", "none"};
    if (std::ranges::find(kKnown, name) == kKnown.end())
      job.tell(dotted, name + " is not written to; metrics.jsonl in the run folder has everything");
  }
}

/// Reads what of DeepSpeed's configuration says how ranks share the state.
void move_deepspeed(Moving& job, const std::string& dotted, const Node& value) {
  const std::string file = value.text;
  int stage = -1;
  bool offloads = false;
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(file, ignored);
  const auto found = is_file ? parse_json_file(file) : nlohmann::json();
  if (found.is_object() && found.contains("zero_optimization") && found["zero_optimization"].is_object()) {
    const auto& zero = found["zero_optimization"];
    stage = zero.value("stage", 0);
    offloads = zero.contains("offload_optimizer") || zero.contains("offload_param");
  } else {
    for (int number = 0; number <= 3; ++number)
      for (const std::string word : {"z", "zero", "stage"})
        if (file.find(word + std::to_string(number)) != std::string::npos) stage = number;
    offloads = file.find("offload") != std::string::npos;
  }
  constexpr std::array kShards{"none", "optimizer", "gradients", "parameters"};
  if (stage < 0 || stage > 3)
    return job.tell(dotted, "its stage is parallel.shard: optimizer (1), gradients (2) or parameters (3)");
  if (stage > 0) job.set("parallel.shard", kShards.at(static_cast<size_t>(stage)), "ZeRO " + std::to_string(stage));
  if (offloads) job.set("train.offload.optimizer", "true");
}

void move_fsdp(Moving& job, const std::string& dotted, const Node& value) {
  std::string all = value.text;
  for (const Node& part : value.parts) all += " " + part.text;
  std::ranges::transform(all, all.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto says = [&](const char* word) { return all.find(word) != std::string::npos; };
  if (says("full_shard") || all == "true") job.set("parallel.shard", "parameters", "FSDP");
  if (says("shard_grad_op") || says("hybrid_shard_zero2")) job.set("parallel.shard", "gradients", "FSDP");
  if (says("hybrid_shard")) job.tell(dotted, "parallel.replicate says into how many groups the ranks are divided");
  if (says("offload")) job.set("train.offload.optimizer", "true");
}

void move_curve(Moving& job, const std::string& dotted, const Node& value) {
  const std::string ours = our_word("lr_scheduler.type", value.text);
  if (!ours.empty()) return job.set("lr_scheduler.type", ours);
  job.tell(dotted, "no such curve here: `gputrain list lr_schedulers`; the job has the default one");
}

void move_logging_steps(Moving& job, const std::string&, const Node& value) {
  job.set("log.interval", length_of(value.text));
}

void move_metric_for_best_model(Moving& job, const std::string& dotted, const Node& value) {
  const std::string ours = our_word("checkpoint.metric", value.text);
  if (!ours.empty()) return job.set("checkpoint.metric", ours);
  job.tell(dotted, "no task measures it: `gputrain list tasks` has the metrics of each; the best is by the task's own");
}

void move_dataloader_pin_memory(Moving& job, const std::string&, const Node& value) {
  if (is_off(value)) job.set("data.pin_memory", "false");
}

void move_ddp_timeout(Moving& job, const std::string& dotted, const Node& value) {
  const double seconds = job.number(dotted, 0);
  if (seconds > 0 && seconds <= kLongestTimeout) return job.set("parallel.timeout", value.text + "s");
  job.tell(dotted, "not needed: data is prepared before the ranks meet; parallel.timeout is 10m");
}

void move_resume_from_checkpoint(Moving& job, const std::string& dotted, const Node& value) {
  if (is_off(value)) return;
  job.tell(dotted,
           "a run goes on from its own newest checkpoint by itself; to begin from weights of another "
           "program, give their folder as model.pretrained");
}

Table trainer_table() {
  return {
      to({"output_dir"}, "output_dir"),
      to({"run_name"}, "name"),
      to({"seed"}, "seed"),
      to({"per_device_train_batch_size", "per_gpu_train_batch_size"}, "train.micro_batch_size"),
      to({"per_device_eval_batch_size", "per_gpu_eval_batch_size"}, "eval.batch_size"),
      to({"gradient_accumulation_steps"}, "train.gradient_accumulation_steps"),
      read_later({"num_train_epochs", "max_steps", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2",
                  "adam_epsilon", "max_grad_norm", "warmup_steps", "warmup_ratio", "eval_strategy",
                  "evaluation_strategy", "eval_steps", "save_strategy", "save_steps", "bf16", "fp16", "tf32"}),
      by({"lr_scheduler_type"}, move_curve),
      read_later(
          {"lr_scheduler_kwargs"},
          "options beside lr_scheduler.type: of cosine min_lr, which is also min_lr_rate times learning_rate; of "
          "cosine_restarts num_cycles; of polynomial power, and lr_end as min_lr; of wsd num_decay_steps as decay"),
      by({"optim"}, move_optimizer),
      flag({"adafactor"}, "optimizer.type", "adafactor"),
      to({"label_smoothing_factor"}, "train.label_smoothing"),
      flag({"gradient_checkpointing", "activation_checkpointing"}, "train.activation_checkpointing", "block"),
      told({"gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"},
           "not needed: blocks are recomputed in one way"),
      flag({"activation_offloading"}, "train.offload.activations", "true"),
      to({"neftune_noise_alpha"}, "model.config.neftune_alpha"),
      flag({"auto_find_batch_size"}, "train.micro_batch_size", "auto"),
      flag({"full_determinism"}, "deterministic", "true"),
      flag({"use_cpu", "no_cuda"}, "device", "cpu"),
      flag({"eval_on_start"}, "eval.at_start", "true"),
      by({"logging_steps"}, move_logging_steps),
      to({"save_total_limit"}, "checkpoint.keep_last"),
      by({"metric_for_best_model"}, move_metric_for_best_model),
      to({"early_stopping_patience"}, "eval.early_stopping.patience"),
      to({"early_stopping_threshold"}, "eval.early_stopping.min_delta"),
      to({"dataloader_num_workers"}, "data.num_workers"),
      by({"dataloader_pin_memory"}, move_dataloader_pin_memory),
      to({"dataloader_prefetch_factor"}, "data.prefetch_factor"),
      flag({"dataloader_drop_last"}, "data.last", "drop"),
      by({"report_to"}, move_report),
      by({"deepspeed"}, move_deepspeed),
      by({"fsdp", "fsdp_config.fsdp_sharding_strategy", "fsdp_config.sharding_strategy"}, move_fsdp),
      flag({"fsdp_config.fsdp_offload_params", "fsdp_config.offload_params"}, "train.offload.optimizer", "true"),
      flag({"fsdp_config.fsdp_activation_checkpointing", "fsdp_config.activation_checkpointing"},
           "train.activation_checkpointing", "block"),
      told({"fsdp_config", "fsdp_config.*", "fsdp_version", "fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap",
            "fsdp_final_state_dict_type", "fp32_norms", "fp32_norm_classes"},
           "not needed: parallel.shard: parameters shares out each block, and checkpoints are whole on any number of "
           "ranks"),
      by({"ddp_timeout"}, move_ddp_timeout),
      to({"ddp_bucket_cap_mb"}, "parallel.bucket_cap_mb"),
      by({"resume_from_checkpoint", "auto_resume_from_checkpoints"}, move_resume_from_checkpoint),
      told({"group_by_length", "train_sampling_strategy", "length_column_name"},
           "not needed: texts of similar length share a micro-batch"),
      told({"load_best_model_at_end"},
           "the best checkpoint is RUN/ckpt/best, which `gputrain eval`, `predict` and `export` take; "
           "RUN/model.safetensors are the last weights"),
      told({"greater_is_better"}, "not needed: each metric knows which values are better"),
      told({"save_only_model"}, "a checkpoint has all that a run needs to go on; model.safetensors are the weights"),
      told({"save_on_each_node", "save_safetensors", "enable_jit_checkpoint", "save_first_step"},
           "not needed: checkpoints are safetensors; `gputrain run --smoke` tries a save at once"),
      told({"torch_compile*", "torchdynamo"}, "not needed: nothing is compiled here"),
      told({"fp16_backend", "half_precision_backend", "fp16_opt_level", "use_ipex", "jit_mode_eval", "use_mps_device",
            "xpu_backend", "tpu_num_cores", "tpu_metrics_debug", "mp_parameters", "use_legacy_prediction_loop",
            "split_batches", "dispatch_batches"},
           "not needed: precision says how products are computed, and device on what"),
      told({"past_index"}, "nothing here does this"),
      told({"sharded_ddp"}, "its stages are parallel.shard: optimizer, gradients or parameters"),
      told({"use_liger_kernel", "liger_kernel_config", "enable_liger_kernel", "liger_*", "cut_cross_entropy",
            "chunked_cross_entropy*", "use_kernels", "padding_free"},
           "not needed: kernels for the same are always used"),
      told({"attn_implementation", "flash_attn", "flash_attention", "sdp_attention", "xformers_attention",
            "flex_attention", "flex_attn_compile_kwargs", "eager_attention", "sage_attention", "attention",
            "s2_attention", "shift_attn", "flash_attn_*", "flash_optimum", "large_head_attention", "fused_attn_kernel",
            "sdpa_varlen"},
           "not needed: the fastest kernel of attention is used"),
      told({"do_train", "do_predict"}, "not needed: `gputrain run` trains, `gputrain predict` predicts"),
      told({"do_eval"}, "not needed: data.val is evaluated"),
      told({"push_to_hub*", "hub_*", "hf_use_auth_token"},
           "nothing is sent to the Hub: `gputrain export RUN FOLDER --format hf`, then `hf upload`"),
      told({"overwrite_output_dir"}, "a run goes on from its newest checkpoint; `gputrain run JOB --new` starts over"),
      told(
          {"remove_unused_columns", "label_names", "include_for_metrics", "batch_eval_metrics", "prediction_loss_only",
           "eval_do_concat_batches", "eval_use_gather_object", "eval_accumulation_steps", "include_inputs_for_metrics"},
          "not needed: columns are read by name, and metrics are summed as they come"),
      told({"average_tokens_across_devices"},
           "not needed: a step is the mean over the tokens of all ranks and micro-batches"),
      told({"include_num_input_tokens_seen", "include_tokens_per_second", "include_tkps", "skip_memory_metrics",
            "log_level*", "log_on_each_node", "logging_first_step", "logging_nan_inf_filter", "logging_strategy",
            "logging_dir", "disable_tqdm", "plot_loss"},
           "not needed: tokens, rates, memory and curves are always in metrics.jsonl and report.html"),
      told(
          {"dataloader_persistent_workers",
           "dataloader_multiprocessing_context",
           "dataloader_in_order",
           "accelerator_config",
           "parallelism_config",
           "ignore_data_skip",
           "restore_callback_states_from_checkpoint",
           "ddp_*",
           "local_rank",
           "debug",
           "torch_empty_cache_steps",
           "gc_steps",
           "gc_collect_steps",
           "data_seed",
           "bf16_full_eval",
           "fp16_full_eval",
           "use_cache",
           "low_cpu_mem_usage",
           "device_map",
           "device",
           "world_size",
           "ddp",
           "max_memory",
           "gpu_memory_limit"},
          "not needed: `gputrain launch` starts the ranks, and a run resumes at the same sample on any number of them"),
      told({"eval_delay"}, "evaluations begin with the first eval.interval"),
      told({"optim_args", "optim_target_modules"},
           "options of the update rule stand beside optimizer.type: `gputrain describe optimizer NAME`"),
      told({"trackio_*", "use_trackio", "comet_*", "use_comet", "swanlab_*", "use_swanlab"},
           "not written to; log.tensorboard, log.mlflow and log.wandb are"),
      told({"project"}, "of Trackio, which is not written to"),
      told({"hp_space", "callbacks"}, "`gputrain sweep` searches for settings"),
      told({"trust_remote_code"}, "not needed: no code of a model is run"),
  };
}

void finish_rate(Moving& job) {
  if (job.has("learning_rate")) job.set("optimizer.lr", job.text("learning_rate"));
  if (job.has("weight_decay")) job.set("optimizer.weight_decay", job.text("weight_decay"));
  if (job.has("adam_beta1") || job.has("adam_beta2"))
    job.set("optimizer.betas", fmt::format("[{}, {}]", job.number("adam_beta1", 0.9), job.number("adam_beta2", 0.999)));
  if (job.has("adam_epsilon")) job.set("optimizer.eps", job.text("adam_epsilon"));
  if (job.has("max_grad_norm"))
    job.set("train.max_grad_norm", job.is_on("max_grad_norm") ? job.text("max_grad_norm") : "null");
  if (job.is_on("warmup_steps")) {
    job.set("lr_scheduler.warmup", length_of(job.text("warmup_steps")));
  } else if (job.is_on("warmup_ratio")) {
    job.set("lr_scheduler.warmup", fmt::format("{:g}%", job.number("warmup_ratio", 0) * 100));
  }
}

/// Options that lr_scheduler_kwargs gives to some of the curves.
void finish_curve(Moving& job) {
  const Node* options = job.given("lr_scheduler_kwargs");
  if (options == nullptr || is_off(*options)) return;
  const std::string type = job.value_of("lr_scheduler.type");
  for (const Node& part : options->parts) {
    const std::string dotted = "lr_scheduler_kwargs." + part.key;
    if (part.key == "min_lr" && type == "cosine") {
      job.set("lr_scheduler.min_lr", part.text);
    } else if (part.key == "min_lr_rate" && type == "cosine") {
      job.set("lr_scheduler.min_lr", fmt::format("{:.6g}", job.number(dotted, 0) * job.number("learning_rate", 5e-5)));
    } else if (part.key == "num_cycles" && type == "cosine_restarts") {
      job.set("lr_scheduler.num_cycles", part.text);
    } else if (part.key == "power" && type == "polynomial") {
      job.set("lr_scheduler.power", part.text);
    } else if (part.key == "lr_end" && type == "polynomial") {
      job.set("lr_scheduler.min_lr", part.text);
    } else if (part.key == "num_decay_steps" && type == "wsd") {
      job.set("lr_scheduler.decay", part.text);
    } else {
      job.tell(dotted, "no such option here: `gputrain describe lr_scheduler " + type + "`");
    }
  }
}

/// Leaves out what is of evaluations, in a job without data for them.
void leave_out_evaluation(Moving& job) {
  for (const char* ours : {"eval.interval", "eval.batch_size", "eval.at_start", "eval.early_stopping.patience",
                           "eval.early_stopping.min_delta", "checkpoint.metric"})
    job.remove(ours);
  for (const char* theirs :
       {"eval_strategy", "evaluation_strategy", "eval_steps", "evals_per_epoch", "per_device_eval_batch_size",
        "per_gpu_eval_batch_size", "eval_batch_size", "eval_on_start", "early_stopping_patience",
        "early_stopping_threshold", "metric_for_best_model"})
    if (job.names(theirs) && job.is_on(theirs))
      job.tell(theirs, "nothing is evaluated, for the job has no data.val: `data: {val: {split: 5%}}`, or a path");
}

}  // namespace

bool evaluates(const Moving& job) {
  return job.has("eval_strategy") ? job.is_on("eval_strategy") : job.has("eval_steps");
}

const Table& trainer_rows() {
  static const Table kRows = trainer_table();
  return kRows;
}

void finish_trainer(Moving& job) {
  if (job.number("max_steps", -1) > 0) {
    job.set("train.max_steps", job.text("max_steps"));
  } else if (job.has("num_train_epochs")) {
    job.set("train.max_epochs", job.text("num_train_epochs"));
  }
  finish_rate(job);
  const std::string tool = "the Trainer's default";
  if (!job.sets("train.max_steps")) job.otherwise("train.max_epochs", "3", tool);
  job.otherwise("train.micro_batch_size", "8", tool);
  job.otherwise("train.gradient_accumulation_steps", "1", tool);
  if (job.value_of("train.micro_batch_size") == "auto") {
    job.remove("train.gradient_accumulation_steps");
    job.set("train.global_batch_size", fmt::format("{:.0f}", job.number("per_device_train_batch_size", 8) *
                                                                 job.number("gradient_accumulation_steps", 1)));
  }
  job.otherwise("optimizer.type", "adamw", tool);
  job.otherwise("optimizer.lr", "5e-5", tool);
  job.otherwise("optimizer.weight_decay", "0", tool);
  if (const std::string type = job.value_of("optimizer.type"); type != "adamw" && type != "adamw8bit" && type != "lion")
    for (const char* option : {"optimizer.betas", "optimizer.eps"}) job.remove(option);
  job.otherwise("train.max_grad_norm", "1.0", tool);
  job.otherwise("lr_scheduler.type", "linear", tool);
  finish_curve(job);
  if (job.is_on("bf16")) {
    job.set("precision", "bf16");
  } else if (job.is_on("fp16")) {
    job.set("precision", "fp16");
  } else if (job.is_on("tf32")) {
    job.set("precision", "tf32");
  }
  set_interval(job, "eval_strategy", "eval_steps", "eval.interval", "no",
               job.has("logging_steps") ? job.text("logging_steps") : "500");
  set_interval(job, "save_strategy", "save_steps", "checkpoint.interval", "steps", "500");
  if (job.sets("eval.early_stopping.min_delta") && !job.sets("eval.early_stopping.patience")) {
    job.remove("eval.early_stopping.min_delta");
    job.tell("early_stopping_threshold", "training ends early where eval.early_stopping.patience says so");
  }
  if (!job.sets("data.val.path") && !job.sets("data.val.split")) leave_out_evaluation(job);
}

}  // namespace gputrain::app::foreign

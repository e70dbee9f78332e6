#include "gputrain/train/spec.hpp"

#include <string>

#include "gputrain/core/numbers.hpp"

namespace gputrain::train {

using config::Change;

namespace {

/// Checks that the search has something to choose, and does not decide what a step consists of.
void check_micro_batch_search(const TrainSpec& spec, config::SpecIssues& issues) {
  if (!spec.searches_micro_batch()) return;
  if (!spec.names_global_batch()) {
    issues.add("micro_batch_size", "auto chooses how a step is divided, but the size of a step is not set",
               "add train.global_batch_size (samples per optimizer step)");
  } else if (!spec.gradient_accumulation_steps.is_auto()) {
    issues.add("micro_batch_size",
               "auto has no choice: the global batch and gradient_accumulation_steps determine the micro-batch",
               "leave gradient_accumulation_steps out, or micro_batch_size");
  }
}

/// Finds sizes that no number of ranks satisfies.
void check_batch_sizes(const TrainSpec& spec, config::SpecIssues& issues) {
  const auto& passes = spec.gradient_accumulation_steps.value;
  if (!spec.global_batch_size || !passes || spec.searches_micro_batch()) return;
  const int64_t global = *spec.global_batch_size;
  if (!spec.micro_batch_size) {
    if (*passes <= global) return;
    issues.add("gradient_accumulation_steps",
               std::to_string(*passes) + " is more than the " + counted(global, "sample") + " of global_batch_size",
               "at most " + std::to_string(global) + ", or a larger global batch");
    return;
  }
  const int64_t micro = *spec.micro_batch_size->value;
  if (global % (micro * *passes) == 0) return;
  issues.add("global_batch_size",
             std::to_string(global) + " is not micro_batch_size " + std::to_string(micro) +
                 " x gradient_accumulation_steps " + std::to_string(*passes) + " x any number of ranks",
             "leave one of the three out; it follows from the others");
}

/// Translates Hugging Face's `eval_strategy: epoch`; `steps` adds nothing to the interval.
std::string interval_of_strategy(const std::string& strategy) {
  if (strategy == "no") return "null";
  return strategy == "epoch" ? "1ep" : "";
}

// Limits that keep products of these values in 64 bits.
constexpr int64_t kMostSteps = int64_t{1} << 32, kMostTokens = int64_t{1} << 52, kMostInAStep = int64_t{1} << 30;

}  // namespace

void TrainSpec::describe(config::Description<TrainSpec>& d) {
  d.summary("length of training, batch sizes, loss, safety");
  d.key("max_epochs", &TrainSpec::max_epochs, "stop after this many passes over the training data")
      .above(0)
      .change(Change::needs_accept)
      .aliases({"num_train_epochs", "epochs", "num_epochs", "n_epochs", "total_epochs"});
  d.key("max_steps", &TrainSpec::max_steps, "stop after this many optimizer steps")
      .range(1, kMostSteps)
      .change(Change::needs_accept)
      .aliases({"train_steps", "num_steps", "max_iters", "num_iterations", "total_steps", "steps"});
  d.key("max_tokens", &TrainSpec::max_tokens, "stop after this many tokens (text)")
      .range(1, kMostTokens)
      .change(Change::needs_accept);
  d.key("max_time", &TrainSpec::max_time, "stop after this much training time, summed over attempts")
      .above(0)
      .change(Change::safe);
  d.key("global_batch_size", &TrainSpec::global_batch_size,
        "samples per optimizer step over all ranks. A run may go on with another size: epochs, tokens, percentages and "
        "the learning rate then go on by samples, and max_steps and intervals in steps by steps. null: "
        "global_batch_tokens says it, or else it is micro_batch_size times ranks and accumulation")
      .range(1, kMostInAStep)
      .unit("samples")
      .change(Change::needs_accept)
      .aliases({"train_batch_size", "effective_batch_size", "total_batch_size"});
  d.key("global_batch_tokens", &TrainSpec::global_batch_tokens,
        "tokens per optimizer step over all ranks (text), instead of global_batch_size; null: that key says it")
      .range(1, kMostInAStep)
      .unit("tokens")
      .change(Change::needs_accept);
  d.key("micro_batch_size", &TrainSpec::micro_batch_size,
        "samples per forward pass on one rank; auto: tries sizes on all ranks before the first step, uses the fastest "
        "that "
        "fits and keeps it when resuming; null: the global batch divided by ranks and accumulation")
      .range(1, kMostInAStep)
      .unit("samples")
      .change(Change::safe)
      .aliases({"per_device_train_batch_size", "train_micro_batch_size_per_gpu", "device_train_microbatch_size",
                "local_batch_size", "batch_size"});
  d.key("gradient_accumulation_steps", &TrainSpec::gradient_accumulation_steps,
        "forward passes per optimizer step; auto: derived from the two batch sizes")
      .range(1, kMostInAStep)
      .change(Change::safe)
      .aliases({"accumulate_grad_batches", "grad_accum_steps"});
  d.key("label_smoothing", &TrainSpec::label_smoothing,
        "part of the target probability that is spread evenly over all classes")
      .range(0, 1)
      .change(Change::needs_accept)
      .aliases({"smoothing", "label_smoothing_factor"});
  d.key("max_grad_norm", &TrainSpec::max_grad_norm, "clip the gradient's 2-norm to this; null: no clipping")
      .above(0)
      .change(Change::needs_accept)
      .aliases({"gradient_clip_val", "clip_grad", "gradient_clipping", "grad_clip", "max_norm"});
  d.key("nonfinite", &TrainSpec::nonfinite,
        "what to do if a loss or gradient is not finite: stop, with exit code 4; skip the update and continue; or "
        "rollback: load the newest good checkpoint and continue with the data after the bad step. The data since "
        "the checkpoint is skipped, because training on it again would give the same result")
      .choices({"stop", "skip", "rollback"})
      .change(Change::safe);
  d.key("max_skips_in_a_row", &TrainSpec::max_skips_in_a_row,
        "with nonfinite: skip, the number of updates that may be skipped in a row; one more ends training with "
        "exit code 4")
      .at_least(1)
      .change(Change::safe);
  d.key("max_rollbacks", &TrainSpec::max_rollbacks,
        "with nonfinite: rollback, the number of rollbacks over all attempts; one more ends training with exit "
        "code 4")
      .at_least(1)
      .change(Change::safe);
  d.key("ema", &TrainSpec::ema,
        "keep an exponential moving average of the weights and of running statistics, and evaluate and write that "
        "average; null: no average")
      .change(Change::refused);
  d.key("swa", &TrainSpec::swa,
        "keep the mean of the weights at several points near the end of training, and evaluate and write that mean; "
        "null: no mean")
      .change(Change::refused);
  d.key("activation_checkpointing", &TrainSpec::activation_checkpointing,
        "save memory: store less in the forward pass and recompute it in the backward pass, with the same "
        "gradients bit for bit; block: stores only the inputs of blocks and takes a third more time; selective: "
        "recomputes only norms and activations, which costs little")
      .choices({"none", "selective", "block"})
      .change(Change::safe)
      .aliases({"gradient_checkpointing", "grad_checkpointing", "checkpoint_activations"});
  d.key("offload", &TrainSpec::offload,
        "save memory of a GPU: copy what is not needed at the moment to page-locked memory of the host, on streams of "
        "its own, with the same results bit for bit; steps are not recorded as CUDA graphs then");
  d.key("cuda_graphs", &TrainSpec::cuda_graphs,
        "auto: a GPU's steps are recorded as CUDA graphs and replayed, which takes less work of the CPU. There are "
        "graphs for at most 8 shapes of a micro-batch; other steps run without. So do all steps that cannot be "
        "recorded: with parallel.shard: parameters, parallel.pipeline or train.offload, and where recomputed blocks "
        "have dropout. off: no graphs")
      .choices({"auto", "off"})
      .change(Change::safe);
  d.key("kernel_trials", &TrainSpec::kernel_trials,
        "on a GPU, the time that may be spent on trying kernels for new shapes; after that, they take the kernels that "
        "were fastest for others")
      .change(Change::safe);
  d.key("channels_last", &TrainSpec::channels_last, "NHWC memory order for images; auto: yes, because it is faster")
      .change(Change::safe);
  d.check([](const TrainSpec& spec, config::SpecIssues& issues) {
    check_micro_batch_search(spec, issues);
    check_batch_sizes(spec, issues);
  });
}

void EmaSpec::describe(config::Description<EmaSpec>& d) {
  d.summary("an exponential moving average of the weights, which is evaluated and written instead of them");
  d.key("decay", &EmaSpec::decay, "what is kept of the average at each step")
      .at_least(0)
      .below(1)
      .change(Change::needs_accept);
  d.key("warmup", &EmaSpec::warmup,
        "keep at most (1 + step) / (10 + step) of the average, so that the first weights are soon forgotten")
      .change(Change::needs_accept);
}

void OffloadSpec::describe(config::Description<OffloadSpec>& d) {
  d.summary("what waits in the memory of the host");
  d.key("activations", &OffloadSpec::activations,
        "with activation_checkpointing: block, the inputs of blocks: copied away in the forward pass, and back while "
        "the block after is in its backward pass")
      .change(Change::safe);
  d.key("optimizer", &OffloadSpec::optimizer,
        "the state of the optimizer: an update copies it to the GPU and back, part by part")
      .change(Change::safe);
}

void SwaSpec::describe(config::Description<SwaSpec>& d) {
  d.summary("the mean of the weights at several points near the end, which is evaluated and written instead of them");
  d.key("start", &SwaSpec::start, "the first point").at_least(0).change(Change::refused);
  d.key("interval", &SwaSpec::interval, "time between points").above(0).change(Change::refused);
}

void EarlyStoppingSpec::describe(config::Description<EarlyStoppingSpec>& d) {
  d.summary("end training, as completed, when checkpoint.metric stops improving");
  d.key("patience", &EarlyStoppingSpec::patience,
        "training ends after this many evaluations in a row without improvement")
      .at_least(1)
      .change(Change::safe)
      .aliases({"early_stopping_patience"});
  d.key("min_delta", &EarlyStoppingSpec::min_delta, "an improvement must be larger than this")
      .at_least(0)
      .change(Change::safe)
      .aliases({"early_stopping_threshold"});
}

void EvalSpec::describe(config::Description<EvalSpec>& d) {
  d.summary("evaluation on data.val during and after training");
  d.key("interval", &EvalSpec::interval, "time between evaluations; null: only at the end")
      .above(0)
      .change(Change::safe)
      .aliases({"eval_steps", "val_check_interval", "eval_interval", "eval_every"})
      .aliases("check_val_every_n_epoch", config::epochs_of_count)
      .aliases("eval_strategy", interval_of_strategy)
      .aliases("evaluation_strategy", interval_of_strategy);
  d.key("max_tokens", &EvalSpec::max_tokens, "evaluate only on the first tokens of data.val; null: on all")
      .at_least(1)
      .change(Change::safe);
  d.key("batch_size", &EvalSpec::batch_size, "samples per forward pass; null: train.micro_batch_size")
      .at_least(1)
      .unit("samples")
      .change(Change::safe)
      .aliases({"per_device_eval_batch_size"});
  d.key("at_start", &EvalSpec::at_start, "evaluate once before the first step").change(Change::safe);
  d.key("hflip", &EvalSpec::hflip,
        "of images: take the mean of the predictions for each one and for its mirror image (test-time flip)")
      .change(Change::safe);
  d.key("early_stopping", &EvalSpec::early_stopping,
        "end training when evaluations stop improving by checkpoint.metric; null: train to the end")
      .change(Change::safe);
  d.key("sample", &EvalSpec::sample, "texts that the model writes after training; null: none").change(Change::safe);
}

void CheckpointSpec::describe(config::Description<CheckpointSpec>& d) {
  d.summary("saving and resuming");
  d.key("interval", &CheckpointSpec::interval,
        "time between checkpoints; auto: minimises lost time, from the cost of a save and how often the run's "
        "attempts were killed; null: only at the end")
      .above(0)
      .change(Change::safe)
      .aliases({"save_steps", "steps_per_checkpoint", "save_interval", "checkpoint_interval", "every_n_train_steps"})
      .aliases("save_strategy", interval_of_strategy);
  d.key("keep_last", &CheckpointSpec::keep_last, "number of newest checkpoints to keep")
      .at_least(1)
      .change(Change::safe)
      .aliases({"save_total_limit", "max_keep_ckpts"});
  d.key("keep_best", &CheckpointSpec::keep_best,
        "number of best checkpoints to keep in addition, by checkpoint.metric; if not 0, a best evaluation is "
        "saved at once")
      .at_least(0)
      .change(Change::safe)
      .aliases({"save_top_k", "keep_top_k"});
  d.key("keep_every", &CheckpointSpec::keep_every,
        "also save at multiples of this, and never delete these checkpoints; null: none")
      .above(0)
      .change(Change::safe);
  d.key("metric", &CheckpointSpec::metric,
        "the metric of data.val that decides which checkpoint is best, such as loss or top1; auto: that of "
        "the task (top1 of images, accuracy of texts with classes, loss of language models, and so on)")
      .change(Change::safe)
      .aliases({"metric_for_best_model", "monitor"});
  d.key("max_save_failures", &CheckpointSpec::max_save_failures,
        "end training with exit code 5 after this many failed saves in a row")
      .at_least(1)
      .change(Change::safe);
  d.key("mirror", &CheckpointSpec::mirror,
        "a folder, for instance on another disk, for a second copy of each checkpoint, written in the background; "
        "errors there are reported and end nothing; resume uses the newest good checkpoint of both; null: none")
      .path()
      .change(Change::safe);
  d.key("notice", &CheckpointSpec::notice, "when the cloud is about to take the machine away");
  d.key("resume", &CheckpointSpec::resume,
        "auto: resume from the newest good checkpoint of the run folder, if any; must: fail if there is none; "
        "never: start over at every start, as `gputrain run --new` does once; a path: resume from that checkpoint")
      .path()
      .change(Change::safe)
      .aliases({"resume_from_checkpoint", "load_from", "init_from"});
}

void IdleSpec::describe(config::Description<IdleSpec>& d) {
  d.summary("GPUs that are paid for and do nothing");
  d.key("min_gpu_utilization", &IdleSpec::min_gpu_utilization,
        "the busiest GPU computes less than this part of the time")
      .range(0, 100)
      .unit("percent")
      .change(Change::safe);
  d.key("time_window", &IdleSpec::time_window, "for so long").above(0).change(Change::safe);
}

void LimitsSpec::describe(config::Description<LimitsSpec>& d) {
  d.summary("limits of a run and of an attempt");
  d.key("price_per_hour", &LimitsSpec::price_per_hour, "what all machines of the run cost, in any currency")
      .above(0)
      .change(Change::safe);
  d.key("max_cost", &LimitsSpec::max_cost,
        "save and end, with exit code 93, when all attempts together have cost so much; by price_per_hour")
      .above(0)
      .change(Change::safe);
  d.key("idle", &LimitsSpec::idle, "save and end, with exit code 93, when no GPU has work; null: never")
      .change(Change::safe);
  d.check([](const LimitsSpec& spec, config::SpecIssues& issues) {
    if (spec.max_cost && !spec.price_per_hour)
      issues.add("max_cost", "needs price_per_hour", "for instance price_per_hour: 2.5");
  });
  d.key("max_duration", &LimitsSpec::max_duration,
        "save and end this attempt after this much wall time, with exit code 138; the same command resumes")
      .above(0)
      .change(Change::safe);
  d.key("max_attempts_without_progress", &LimitsSpec::max_attempts_without_progress,
        "refuse to start, with exit code 93, after this many attempts in a row that died at the step where they "
        "started; null: never")
      .at_least(1)
      .change(Change::safe);
}

void ParallelSpec::describe(config::Description<ParallelSpec>& d) {
  d.summary("training on several ranks");
  d.key("shard", &ParallelSpec::shard,
        "optimizer: each rank stores and updates a shard of the optimizer state (ZeRO 1); gradients: each rank "
        "also stores only its shard of the gradient (ZeRO 2), which is then reduced after every forward pass of a "
        "step; parameters: also only its shard of the weights, trained and frozen ones (ZeRO 3, FSDP), which are "
        "gathered unit by unit in every forward and backward pass")
      .choices({"none", "optimizer", "gradients", "parameters"})
      .change(Change::safe)
      .aliases({"zero_stage"});
  d.key("replicate", &ParallelSpec::replicate,
        "how many replicas share out the same (HSDP): shards stay within groups of neighbouring ranks, best within "
        "hosts, and only gradients are all-reduced between them, once a step; must divide the number of ranks")
      .at_least(1)
      .change(Change::safe)
      .aliases({"data_parallel_replicate_degree", "dp_replicate"});
  d.key("context", &ParallelSpec::context,
        "how many ranks share the positions of each text, for texts whose activations are too large for one: each has "
        "those of its part, and gathers the keys and values of the others; must divide the number of ranks")
      .at_least(1)
      .change(Change::safe)
      .aliases({"context_parallel_degree", "context_parallel_size"});
  d.key(
       "tensor", &ParallelSpec::tensor,
       "how many ranks share the layers of the model (tensor parallelism), each with a part of the attention heads, of "
       "the inner channels and of the vocabulary; they talk twice in each layer, so keep them within hosts; must "
       "divide "
       "the number of ranks and of heads")
      .at_least(1)
      .change(Change::safe)
      .aliases({"tensor_parallel_degree", "tensor_parallel_size", "tensor_model_parallel_size"});
  d.key("pipeline", &ParallelSpec::pipeline,
        "how many stages the model is cut into (pipeline parallelism): each group of ranks has some of the units, and "
        "the micro-batches of a step pass from stage to stage, so give it several of them; a stage talks only to its "
        "neighbours, so stages may lie on other hosts; must divide the number of ranks")
      .at_least(1)
      .change(Change::safe)
      .aliases({"pipeline_parallel_degree", "pipeline_parallel_size", "pipeline_model_parallel_size"});
  d.key("virtual_stages", &ParallelSpec::virtual_stages,
        "how many parts of the model each stage has, in turn with the others (interleaved pipeline): stages wait less "
        "and send more; the micro-batches of a step must then be a multiple of the stages")
      .at_least(1)
      .change(Change::safe)
      .aliases({"virtual_pipeline_model_parallel_size"});
  d.key("bucket_cap_mb", &ParallelSpec::bucket_cap_mb,
        "gradient bytes per collective, but at least a unit of the model; auto: from the model's size and the measured "
        "time of an all-reduce; 25 with parallel.tensor or pipeline, where parallel.shard splits tensors, and if "
        "deterministic is true. With parallel.shard: parameters each unit is sent by itself")
      .above(0)
      .unit("MiB")
      .change(Change::safe);
  d.key("sync_bn", &ParallelSpec::sync_bn,
        "batch norm in training uses statistics over the micro-batches of all ranks; at the end of an epoch, over "
        "the samples that count")
      .change(Change::needs_accept)
      .aliases({"sync_batchnorm", "sync_batch_norm"});
  d.key("compress", &ParallelSpec::compress, "how gradients are sent: fp16 or bf16, half the bytes")
      .choices({"none", "fp16", "bf16"})
      .change(Change::needs_accept)
      .aliases({"communication_data_type"});
  d.key("check_replicas", &ParallelSpec::check_replicas,
        "how often to compare the ranks' weights bit for bit, besides before every checkpoint; if they differ, "
        "training ends with exit code 4 and names the first tensor and rank; null: never")
      .above(0)
      .change(Change::safe);
  d.key("timeout", &ParallelSpec::timeout, "maximum time of a collective").above(0).change(Change::safe);
}

}  // namespace gputrain::train

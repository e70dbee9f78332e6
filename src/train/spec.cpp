#include "gputrain/train/spec.hpp"

namespace gputrain::train {

using config::Change;

namespace {

/// What is searched must be free to choose, and what a step consists of is not for the search to decide.
void check_micro_batch_search(const TrainSpec& spec, config::Complaints& complaints) {
  if (!spec.searches_micro_batch()) return;
  if (!spec.names_global_batch()) {
    complaints.about("micro_batch_size", "auto chooses how a step is divided, and nothing says how large one is",
                     "add train.global_batch_size (samples per optimizer step)");
  } else if (!spec.gradient_accumulation_steps.is_auto()) {
    complaints.about("micro_batch_size",
                     "auto has no choice: the global batch and gradient_accumulation_steps decide it",
                     "leave gradient_accumulation_steps out, or micro_batch_size");
  }
}

/// Of Hugging Face's `eval_strategy: epoch`; `steps` says nothing that the interval does not.
std::string interval_of_strategy(const std::string& strategy) {
  if (strategy == "no") return "null";
  return strategy == "epoch" ? "1ep" : "";
}

// So that products of them are numbers still.
constexpr int64_t kMostSteps = int64_t{1} << 32, kMostTokens = int64_t{1} << 52, kMostInAStep = int64_t{1} << 30;

}  // namespace

void TrainSpec::describe(config::Description<TrainSpec>& d) {
  d.summary("how long and how big: length of training, batch sizes, loss, safety");
  d.key("max_epochs", &TrainSpec::max_epochs, "stop after this many passes over the training data")
      .above(0)
      .change(Change::needs_accept)
      .instead_of({"num_train_epochs", "epochs", "num_epochs", "n_epochs", "total_epochs"});
  d.key("max_steps", &TrainSpec::max_steps, "stop after this many optimizer steps")
      .range(1, kMostSteps)
      .change(Change::needs_accept)
      .instead_of({"train_steps", "num_steps", "max_iters", "num_iterations", "total_steps", "steps"});
  d.key("max_tokens", &TrainSpec::max_tokens, "stop after this many tokens (text)")
      .range(1, kMostTokens)
      .change(Change::needs_accept);
  d.key("max_time", &TrainSpec::max_time, "stop after this much training time, summed over attempts")
      .above(0)
      .change(Change::safe);
  d.key("global_batch_size", &TrainSpec::global_batch_size, "samples per optimizer step over all ranks")
      .range(1, kMostInAStep)
      .unit("samples")
      .change(Change::needs_accept)
      .instead_of({"train_batch_size", "effective_batch_size", "total_batch_size"});
  d.key("global_batch_tokens", &TrainSpec::global_batch_tokens, "the same, in tokens (text)")
      .range(1, kMostInAStep)
      .unit("tokens")
      .change(Change::needs_accept);
  d.key("micro_batch_size", &TrainSpec::micro_batch_size,
        "samples per forward pass on one rank; or a list with a number for each rank, where their GPUs differ: a step "
        "is "
        "shared out in this proportion; auto: the fastest that fits, tried before the first step on all ranks and kept "
        "by "
        "resumed runs; null: the global batch divided by ranks and accumulation")
      .range(1, kMostInAStep)
      .unit("samples")
      .change(Change::safe)
      .instead_of({"per_device_train_batch_size", "train_micro_batch_size_per_gpu", "device_train_microbatch_size",
                   "local_batch_size", "batch_size"});
  d.key("gradient_accumulation_steps", &TrainSpec::gradient_accumulation_steps,
        "forward passes per optimizer step; auto: derived from the two batch sizes")
      .range(1, kMostInAStep)
      .change(Change::safe)
      .instead_of({"accumulate_grad_batches", "grad_accum_steps"});
  d.key("label_smoothing", &TrainSpec::label_smoothing, "share of the target spread evenly over all classes")
      .range(0, 1)
      .change(Change::needs_accept)
      .instead_of({"smoothing", "label_smoothing_factor"});
  d.key("max_grad_norm", &TrainSpec::max_grad_norm, "clip the gradient's 2-norm to this")
      .above(0)
      .change(Change::needs_accept)
      .instead_of({"gradient_clip_val", "clip_grad", "gradient_clipping", "grad_clip", "max_norm"});
  d.key("nonfinite", &TrainSpec::nonfinite,
        "on a loss or gradient that is not finite: stop with exit code 4; skip the update and go on; or rollback: take "
        "up the newest good checkpoint and go on with the data after the offending step, so that all steps since the "
        "checkpoint are passed over (to train on them again would lead to the same place)")
      .choices({"stop", "skip", "rollback"})
      .change(Change::safe);
  d.key("max_skips_in_a_row", &TrainSpec::max_skips_in_a_row,
        "under nonfinite: skip, updates left out one after the other; one more ends training with exit code 4")
      .at_least(1)
      .change(Change::safe);
  d.key("max_rollbacks", &TrainSpec::max_rollbacks,
        "under nonfinite: rollback, how often over all attempts; one more ends training with exit code 4")
      .at_least(1)
      .change(Change::safe);
  d.key(
       "activation_checkpointing", &TrainSpec::activation_checkpointing,
       "keep less of the forward pass and compute it again in the backward pass, with the same gradients bit for bit: "
       "block, "
       "all but the inputs of blocks, for a third more time; selective, only norms and activations, which costs little")
      .choices({"none", "selective", "block"})
      .change(Change::safe)
      .instead_of({"gradient_checkpointing", "grad_checkpointing", "checkpoint_activations"});
  d.key("cuda_graphs", &TrainSpec::cuda_graphs,
        "auto: on a GPU the whole step is recorded once and started with a single call, where that is possible: not "
        "with activation_checkpointing: block, nor with powersgd; off: its work is queued anew in every step")
      .choices({"auto", "off"})
      .change(Change::safe);
  d.key("channels_last", &TrainSpec::channels_last, "NHWC memory order for images; auto: yes, as the faster one")
      .change(Change::safe);
  d.check(check_micro_batch_search);
}

void SampleSpec::describe(config::Description<SampleSpec>& d) {
  d.summary("a text the model writes after training");
  d.key("prompt", &SampleSpec::prompt, "what the text starts with").change(Change::safe);
  d.key("max_new_tokens", &SampleSpec::max_new_tokens, "tokens to write").at_least(1).change(Change::safe);
  d.key("temperature", &SampleSpec::temperature, "0: always the likeliest token; 1: as the model says")
      .at_least(0)
      .change(Change::safe);
  d.key("top_k", &SampleSpec::top_k, "draw from the k likeliest tokens only").at_least(1).change(Change::safe);
}

void EarlyStoppingSpec::describe(config::Description<EarlyStoppingSpec>& d) {
  d.summary("ending training, as done, when checkpoint.metric does not become better any more");
  d.key("patience", &EarlyStoppingSpec::patience,
        "evaluations in a row that may bring no gain; the last of them ends it")
      .at_least(1)
      .change(Change::safe)
      .instead_of({"early_stopping_patience"});
  d.key("min_delta", &EarlyStoppingSpec::min_delta, "what is at most this much better is no gain")
      .at_least(0)
      .change(Change::safe)
      .instead_of({"early_stopping_threshold"});
}

void EvalSpec::describe(config::Description<EvalSpec>& d) {
  d.summary("evaluation on data.val during and after training");
  d.key("interval", &EvalSpec::interval, "time between evaluations; null: only at the end")
      .above(0)
      .change(Change::safe)
      .instead_of({"eval_steps", "val_check_interval", "eval_interval", "eval_every"})
      .instead_of("check_val_every_n_epoch", config::epochs_of_count)
      .instead_of("eval_strategy", interval_of_strategy)
      .instead_of("evaluation_strategy", interval_of_strategy);
  d.key("max_tokens", &EvalSpec::max_tokens, "evaluate on the first tokens of data.val only")
      .at_least(1)
      .change(Change::safe);
  d.key("batch_size", &EvalSpec::batch_size, "samples per forward pass; null: train.micro_batch_size")
      .at_least(1)
      .unit("samples")
      .change(Change::safe)
      .instead_of({"per_device_eval_batch_size"});
  d.key("at_start", &EvalSpec::at_start, "evaluate once before the first step").change(Change::safe);
  d.key("early_stopping", &EvalSpec::early_stopping,
        "end training when evaluations bring no gain; null: train to the end")
      .change(Change::safe);
  d.key("sample", &EvalSpec::sample, "a text the model writes after training; null: none").change(Change::safe);
}

void CheckpointSpec::describe(config::Description<CheckpointSpec>& d) {
  d.summary("saving and resuming");
  d.key("interval", &CheckpointSpec::interval,
        "time between checkpoints; auto: as loses least time, from what a save costs here and how often the run's "
        "attempts "
        "were killed; null: only at the end")
      .above(0)
      .change(Change::safe)
      .instead_of({"save_steps", "steps_per_checkpoint", "save_interval", "checkpoint_interval", "every_n_train_steps"})
      .instead_of("save_strategy", interval_of_strategy);
  d.key("keep_last", &CheckpointSpec::keep_last, "checkpoints kept, the newest ones")
      .at_least(1)
      .change(Change::safe)
      .instead_of({"save_total_limit", "max_keep_ckpts"});
  d.key("keep_best", &CheckpointSpec::keep_best,
        "checkpoints kept besides, the best ones by checkpoint.metric; not 0: a best evaluation is saved at once")
      .at_least(0)
      .change(Change::safe)
      .instead_of({"save_top_k", "keep_top_k"});
  d.key("keep_every", &CheckpointSpec::keep_every,
        "saves at multiples of this besides, and keeps these for good; null: none")
      .above(0)
      .change(Change::safe);
  d.key("metric", &CheckpointSpec::metric,
        "what makes a checkpoint the best: a metric of data.val, such as loss or top1; auto: as the task says (top1, "
        "for "
        "text loss)")
      .change(Change::safe)
      .instead_of({"metric_for_best_model", "monitor"});
  d.key("max_save_failures", &CheckpointSpec::max_save_failures,
        "go on training while fewer saves than this have failed in a row; then exit code 5")
      .at_least(1)
      .change(Change::safe);
  d.key("mirror", &CheckpointSpec::mirror,
        "a folder, on another disk say, that gets a second copy of each checkpoint in the background; what goes wrong "
        "there "
        "is told and ends nothing; resume takes the newest good one of both; null: none")
      .change(Change::safe);
  d.key("notice", &CheckpointSpec::notice, "when the cloud is about to take the machine away");
  d.key("resume", &CheckpointSpec::resume,
        "auto: go on from the newest good checkpoint of the run folder, if any; must: fail without one; never: start "
        "over; a path: that checkpoint")
      .change(Change::safe)
      .instead_of({"resume_from_checkpoint", "load_from", "init_from"});
}

void LimitsSpec::describe(config::Description<LimitsSpec>& d) {
  d.summary("when to give the machine back");
  d.key("max_duration", &LimitsSpec::max_duration,
        "save and end this attempt after this much wall time, with exit code 138: the same command goes on")
      .above(0)
      .change(Change::safe);
  d.key("max_attempts_without_progress", &LimitsSpec::max_attempts_without_progress,
        "refuse to start, with exit code 93, once so many attempts in a row have died at the step they began with; "
        "null: never")
      .at_least(1)
      .change(Change::safe);
}

void ParallelSpec::describe(config::Description<ParallelSpec>& d) {
  d.summary("several ranks");
  d.key("shard", &ParallelSpec::shard,
        "optimizer: each rank keeps and updates its part of the optimizer's state (ZeRO 1); gradients: and has only "
        "that "
        "part of the gradient (ZeRO 2), which is sent for every forward pass of a step")
      .choices({"none", "optimizer", "gradients"})
      .change(Change::safe)
      .instead_of({"zero_stage"});
  d.key("bucket_cap_mb", &ParallelSpec::bucket_cap_mb,
        "gradient bytes reduced at once; auto: from the model's size and what an all-reduce takes here; 25 where "
        "deterministic is true")
      .above(0)
      .unit("MiB")
      .change(Change::safe);
  d.key("sync_bn", &ParallelSpec::sync_bn,
        "batch norm in training takes its statistics over the micro-batches of all ranks; of an epoch's last ones over "
        "the "
        "samples that count")
      .change(Change::needs_accept)
      .instead_of({"sync_batchnorm", "sync_batch_norm"});
  d.key("compress", &ParallelSpec::compress,
        "what gradients are sent as: fp16 or bf16, half the bytes; powersgd, two thin factors of each matrix, whose "
        "error is added to the next gradient")
      .choices({"none", "fp16", "bf16", "powersgd"})
      .change(Change::needs_accept)
      .instead_of({"communication_data_type"});
  d.key("powersgd_rank", &ParallelSpec::powersgd_rank, "columns of powersgd's factors; auto: 4")
      .at_least(1)
      .change(Change::needs_accept)
      .instead_of({"matrix_approximation_rank"});
  d.key("check_replicas", &ParallelSpec::check_replicas,
        "compare the ranks' weights bit for bit this often, and before every checkpoint; exit code 4 names the first "
        "tensor "
        "and rank that differ; null: never")
      .above(0)
      .change(Change::safe);
  d.key("timeout", &ParallelSpec::timeout, "the longest a collective may take").above(0).change(Change::safe);
  d.check([](const ParallelSpec& spec, config::Complaints& complaints) {
    if (spec.compress == "powersgd" && spec.shard != "none") {
      complaints.about("compress",
                       "powersgd needs every rank to have all of a matrix's gradient, but shard is " + spec.shard,
                       "compress: bf16 or fp16, or shard: none");
    }
    if (spec.compress != "powersgd" && !spec.powersgd_rank.is_auto()) {
      complaints.about("powersgd_rank", "powersgd_rank is for compress: powersgd, but compress is " + spec.compress,
                       "compress: powersgd, or leave powersgd_rank out");
    }
  });
}

}  // namespace gputrain::train

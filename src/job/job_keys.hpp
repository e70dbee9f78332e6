// Top-level keys in one order, for the whole job and for the part that starts ranks.
#pragma once

#include "gputrain/job/job_start.hpp"

namespace gputrain::app {

/// Describes the keys. `Spec`: JobStart, or a struct that derives from it and has the other sections too.
template <class Spec>
void describe_keys(config::Description<Spec>& d) {
  using config::Change;
  constexpr bool kIsWhole = !std::is_same_v<Spec, JobStart>;
  d.summary("one training job");
  d.key("schema", &Spec::schema, "version of the job format").range(1, 1);
  d.key("name", &Spec::name, "name of the run; null: the job file's name").change(Change::safe).aliases({"run_name"});
  d.key("seed", &Spec::seed, "random seed of initial weights, data order, augmentation and dropout")
      .at_least(0)
      .aliases({"seed_everything"});
  d.key("deterministic", &Spec::deterministic, "use only kernels whose results are equal bit for bit every time")
      .change(Change::needs_accept);
  d.key("output_dir", &Spec::output_dir, "the run folder; null: runs/<name>")
      .path()
      .change(Change::safe)
      .aliases({"out_dir", "default_root_dir", "output_directory", "save_dir", "work_dir", "run_dir"});
  d.key("device", &Spec::device, "where to train; auto: the GPU if there is one")
      .choices({"auto", "cpu", "cuda"})
      .change(Change::safe);
  d.key("alloc_conf", &Spec::alloc_conf,
        "settings of the GPU's memory allocator, in the syntax of PYTORCH_ALLOC_CONF: \"expandable_segments:True\"")
      .change(Change::safe);
  d.key("precision", &Spec::precision,
        "number format of matrix products, convolutions and attention. Weights are kept and updated in fp32, unless "
        "optimizer.master is bf16. fp64: all numbers are fp64, for tests")
      .choices({"fp32", "tf32", "bf16", "fp16", "fp64"})
      .change(Change::needs_accept)
      .aliases({"mixed_precision", "amp", "use_amp", "use_mixed_precision", "dtype"})
      .alias_flag("bf16", "bf16")
      .alias_flag("fp16", "fp16")
      .alias_flag("tf32", "tf32");
  d.key("plugins", &Spec::plugins,
        "shared libraries with models, data formats, optimizers and other entries of your own; every rank loads them "
        "before the other keys are read")
      .path()
      .change(Change::safe);
  if constexpr (kIsWhole) {
    d.key("model", &Spec::model, "what is trained").required();
    d.key("task", &Spec::task, "what is learned").change(Change::needs_accept);
    d.key("data", &Spec::data, "what it is trained on").required();
    d.key("train", &Spec::train, "length of training, batch sizes, loss, safety");
    d.key("optimizer", &Spec::optimizer, "the update rule").aliases({"optim", "opt"});
    d.key("lr_scheduler", &Spec::lr_scheduler, "the learning rate over time")
        .change(Change::needs_accept)
        .aliases({"lr_scheduler_type", "sched"});
    d.key("eval", &Spec::eval, "evaluation");
  }
  d.key("checkpoint", &Spec::checkpoint, "saving and resuming");
  if constexpr (kIsWhole) {
    d.key("limits", &Spec::limits,
          "when a run ends before its last step: time, cost, idle GPUs, attempts without progress");
    d.key("parallel", &Spec::parallel,
          "how ranks share the work: copies, shards, parts of texts, of layers and of the model; how they exchange "
          "gradients");
  }
  d.key("launch", &Spec::launch, "ranks that `gputrain launch` starts");
  d.key("env", &Spec::env,
        "environment variables of every rank, set before its libraries are loaded; they win over those that are set "
        "already")
      .change(Change::safe)
      .mask_secrets();
  if constexpr (kIsWhole) {
    d.key("log", &Spec::log, "console and metrics");
    d.key("alerts", &Spec::alerts,
          "rules about measurements, besides those that every run has: heat, a lost GPU, a stall, a loss that jumps, a "
          "rate that falls, a full disk")
        .change(Change::safe);
    d.key("expect", &Spec::expect, "expected range of the final metrics").change(Change::safe);
    d.key("sweep", &Spec::sweep, "a search for good settings, for `gputrain sweep`; null: the job is one run")
        .change(Change::safe);
  }
}

}  // namespace gputrain::app

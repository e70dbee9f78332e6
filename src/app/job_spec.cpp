#include "job_spec.hpp"

#include "gputrain/device/gpu_allocator.hpp"

namespace gputrain::app {

using config::Change;

namespace {

void check_allocator(const JobSpec& spec, config::Complaints& complaints) {
  if (!spec.alloc_conf) return;
  if (const auto problem = device::problem_of_allocator_settings(*spec.alloc_conf); !problem.empty())
    complaints.about("alloc_conf", problem);
  if (spec.device == "cpu")
    complaints.about("alloc_conf", "is of a GPU's memory, but device is cpu", "remove it, or set device: auto");
}

}  // namespace

void ModelSpec::describe(config::Description<ModelSpec>& d) {
  d.summary("what is trained");
  d.choice("type", &ModelSpec::architecture, models::catalog(), "the architecture; see `gputrain list models`", "config")
      .required();
  d.key("pretrained", &ModelSpec::pretrained,
        "weights to start from: a safetensors file, or a Hugging Face folder whose config.json gives the sizes")
      .instead_of({"model_name_or_path"});
}

void ExpectSpec::describe(config::Description<ExpectSpec>& d) {
  d.summary("the band [low, high] each final metric should end in; checked at the end, exit code 4 under --verify");
  d.pattern("<split>/<metric>", &ExpectSpec::bands, "lowest and highest value of a final metric, such as val/top1")
      .elements(2)
      .change(Change::safe);
  d.key("source", &ExpectSpec::source, "where the band comes from").change(Change::safe);
}

void JobSpec::describe(config::Description<JobSpec>& d) {
  d.summary("one training job");
  d.key("schema", &JobSpec::schema, "version of the job format").range(1, 1);
  d.key("name", &JobSpec::name, "names the run; null: the job file's name").change(Change::safe);
  d.key("seed", &JobSpec::seed, "of weights, data order, augmentation and dropout").at_least(0);
  d.key("deterministic", &JobSpec::deterministic, "only kernels that give the same bits every time")
      .change(Change::needs_accept);
  d.key("output_dir", &JobSpec::output_dir, "the run folder; null: runs/<name>").change(Change::safe);
  d.key("device", &JobSpec::device, "where to train; auto: the GPU if there is one").choices({"auto", "cpu", "cuda"})
      .change(Change::safe);
  d.key("alloc_conf", &JobSpec::alloc_conf,
        "settings of the GPU's memory allocator, in the words of PYTORCH_ALLOC_CONF: \"expandable_segments:True\"")
      .change(Change::safe);
  d.key("precision", &JobSpec::precision,
        "number format of matrix products; weights and optimizer state stay fp32 (fp64: everything, for tests)")
      .choices({"fp32", "tf32", "bf16", "fp16", "fp64"})
      .change(Change::needs_accept)
      .instead_of({"mixed_precision", "amp", "use_mixed_precision", "dtype"})
      .instead_of_flag("bf16", "bf16")
      .instead_of_flag("fp16", "fp16")
      .instead_of_flag("tf32", "tf32");
  d.key("model", &JobSpec::model, "what is trained").required();
  d.key("data", &JobSpec::data, "what it is trained on").required();
  d.key("train", &JobSpec::train, "how long and how big");
  d.key("optimizer", &JobSpec::optimizer, "the update rule").instead_of({"optim", "opt"});
  d.key("lr_scheduler", &JobSpec::lr_scheduler, "the learning rate over time").instead_of({"lr_scheduler_type", "sched"});
  d.key("eval", &JobSpec::eval, "evaluation");
  d.key("checkpoint", &JobSpec::checkpoint, "saving and resuming");
  d.key("limits", &JobSpec::limits, "when to give the machine back");
  d.key("parallel", &JobSpec::parallel, "several ranks");
  d.key("launch", &JobSpec::launch, "ranks that `gputrain launch` starts");
  d.key("env", &JobSpec::env,
        "environment variables of every rank, set before its libraries are loaded; they win over those that are set already")
      .change(Change::safe).mask_secrets();
  d.key("log", &JobSpec::log, "console and metrics");
  d.key("expect", &JobSpec::expect, "what the job should reach").change(Change::safe);
  d.check([](const JobSpec& spec, config::Complaints& complaints) {
    launch::check_environment_names(spec.env, complaints);
    if (spec.precision == "fp16" && spec.parallel.compress == "powersgd") {
      complaints.about("parallel.compress", "powersgd carries errors from step to step, which fp16's loss scale changes",
                       "precision: bf16, or parallel.compress: fp16");
    }
    check_allocator(spec, complaints);
  });
}

}  // namespace gputrain::app

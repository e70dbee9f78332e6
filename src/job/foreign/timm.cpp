// Jobs of timm's train.py 1.0: its args.yaml, --config files and command lines.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "timm.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;
namespace fs = std::filesystem;

const Words kTimmOptimizers{{"sgd", "sgd"},
                            {"nesterov", "sgd"},
                            {"momentum", "sgd"},
                            {"adamw", "adamw"},
                            {"lamb", "lamb"},
                            {"lion", "lion"},
                            {"adafactor", "adafactor"},
                            {"muon", "muon"},
                            {"bnbadamw8bit", "adamw8bit"},
                            {"adamw8bit", "adamw8bit"},
                            {"fusedadamw", "adamw"},
                            {"fusedsgd", "sgd"},
                            {"fusedlamb", "lamb"}};

void move_log_interval(Moving& job, const std::string& dotted, const Node&) {
  job.set("log.interval", fmt::format("{:g}", std::max(1.0, job.number(dotted, 50))));
}

void move_tta(Moving& job, const std::string& dotted, const Node&) {
  if (job.number(dotted, 0) > 1) job.set("eval.hflip", "true");
}

void move_val_interval(Moving& job, const std::string&, const Node& value) {
  job.set("eval.interval", value.text + "ep");
}

Table timm_table() {
  return {
      read_later({"data_dir",
                  "data",
                  "positional",
                  "program",
                  "train_split",
                  "val_split",
                  "dataset",
                  "model",
                  "pretrained",
                  "img_size",
                  "input_size",
                  "opt",
                  "opt_eps",
                  "opt_betas",
                  "momentum",
                  "weight_decay",
                  "lr",
                  "lr_base",
                  "lr_base_size",
                  "lr_base_scale",
                  "sched",
                  "epochs",
                  "warmup_epochs",
                  "warmup_lr",
                  "warmup_prefix",
                  "min_lr",
                  "cooldown_epochs",
                  "decay_epochs",
                  "decay_milestones",
                  "decay_rate",
                  "lr_decay_fn",
                  "patience_epochs",
                  "no_aug",
                  "scale",
                  "ratio",
                  "hflip",
                  "vflip",
                  "color_jitter",
                  "color_jitter_prob",
                  "force_color_jitter",
                  "grayscale_prob",
                  "gaussian_blur_prob",
                  "aa",
                  "aug_repeats",
                  "interpolation",
                  "train_interpolation",
                  "reprob",
                  "remode",
                  "recount",
                  "crop_pct",
                  "smoothing",
                  "amp",
                  "amp_dtype",
                  "model_dtype",
                  "batch_size",
                  "grad_accum_steps",
                  "initial_checkpoint",
                  "num_classes",
                  "mean",
                  "std",
                  "model_ema",
                  "model_ema_decay",
                  "sched_on_updates",
                  "model_kwargs",
                  "model_kwargs.*",
                  "pretrained_path",
                  "drop",
                  "gp",
                  "output"}),
      to({"validation_batch_size"}, "eval.batch_size"),
      flag({"grad_checkpointing"}, "train.activation_checkpointing", "block"),
      flag({"channels_last"}, "train.channels_last", "true"),
      to({"clip_grad"}, "train.max_grad_norm"),
      words({"clip_mode"}, "", {{"norm", ""}}, "gradients are clipped by their norm"),
      to({"layer_decay"}, "optimizer.layer_decay"),
      to({"drop_path"}, "model.config.drop_path"),
      told({"drop_connect", "drop_block", "bn_momentum", "bn_eps", "split_bn", "in_chans", "head_init_scale",
            "head_init_bias", "torchcompile_mode"},
           "no such option of a model here: `gputrain describe model NAME`"),
      to({"mixup"}, "data.image.augment.mix.mixup"),
      to({"cutmix"}, "data.image.augment.mix.cutmix"),
      to({"mixup_prob"}, "data.image.augment.mix.probability"),
      to({"mixup_switch_prob"}, "data.image.augment.mix.switch_probability"),
      words({"mixup_mode"}, "", {{"batch", ""}}, "a micro-batch is mixed as a whole"),
      to({"mixup_off_epoch"}, "data.image.augment.mix.off_epoch"),
      told({"cutmix_minmax"}, "the area of a rectangle is drawn from cutmix's beta distribution"),
      told({"jsd_loss", "aug_splits", "resplit"}, "no loss compares several versions of an image here"),
      words({"train_crop_mode"}, "", {{"rrc", ""}}, "training crops by data.image.augment.random_resized_crop"),
      words({"crop_mode"}, "", {{"center", ""}}, "the middle of the resized image is evaluated"),
      flag({"bce_loss"}, "task.config.loss", "bce"),
      flag({"bce_sum"}, "task.config.sum_classes", "true"),
      to({"bce_target_thresh"}, "task.config.target_threshold"),
      told({"bce_pos_weight"}, "task.config.class_weights weighs classes"),
      flag({"sync_bn"}, "parallel.sync_bn", "true"),
      told({"dist_bn"}, "not needed: running statistics are rank 0's, or of all ranks with parallel.sync_bn"),
      told({"model_ema_force_cpu"}, "not needed: the average lies beside the weights"),
      told({"model_ema_warmup"},
           "train.ema.warmup keeps at most (1 + step) / (10 + step), timm's 1 - (1 + step)^(-2/3)"),
      to({"seed"}, "seed"),
      told({"worker_seeding",
            "use_multi_epochs_loader",
            "no_prefetcher",
            "pin_mem",
            "fast_norm",
            "torchscript",
            "torchcompile",
            "fuser",
            "aot_autograd",
            "device",
            "device_modules",
            "local_rank",
            "synchronize_step",
            "amp_impl",
            "dataset_trust_remote_code",
            "dataset_download",
            "input_img_mode",
            "input_key",
            "target_key",
            "epoch_repeats",
            "start_epoch",
            "no_resume_opt",
            "safetensors",
            "recovery_interval",
            "save_images",
            "no_ddp_bb",
            "distributed",
            "world_size",
            "rank",
            "prefetcher"},
           "not needed: `gputrain run` does this by itself"),
      told({"num_samples", "val_num_samples", "class_map", "dataset_config"},
           "the files in data.train.path say what is trained on"),
      told({"lr_noise*", "lr_cycle_*", "lr_k_decay", "lr_stable_timescale", "opt_kwargs", "sched_kwargs", "opt_caution",
            "opt_foreach"},
           "no such option here: `gputrain describe lr_scheduler cosine`"),
      to({"workers"}, "data.num_workers"),
      to({"checkpoint_hist"}, "checkpoint.keep_last"),
      to({"experiment"}, "name"),
      by({"log_interval"}, move_log_interval),
      words({"eval_metric"}, "checkpoint.metric", {{"top1", "top1"}, {"top5", "top5"}, {"loss", "loss"}},
            "the task's own metric decides which checkpoint is best"),
      by({"tta"}, move_tta),
      flag({"log_wandb"}, "log.wandb", "{}"),
      to({"wandb_project"}, "log.wandb.project"),
      told({"wandb_*"}, "log.wandb shows curves and settings, and goes on in its own run after a resume"),
      by({"val_interval"}, move_val_interval),
      told({"resume"}, "a run goes on from its own newest checkpoint by itself"),
      told({"naflex_*", "naflex", "kd_*", "nproc_per_node", "nnodes", "master_port", "master_addr"},
           "`gputrain launch` starts the ranks"),
  };
}

void finish_data(Moving& job) {
  std::string folder = job.has("data_dir") ? job.text("data_dir") : job.text("data");
  if (folder.empty()) folder = job.text("positional");
  if (const std::string kind = job.text("dataset"); !kind.empty() && kind != "ImageFolder" && kind != "folder")
    job.tell("dataset", "data is read from files: folders of images, a .tar, a list, or `gputrain list datasets`");
  if (folder.empty()) {
    folder = "data";
    job.remark("No data folder was given: data.train.path is a guess.");
  }
  const auto inside = [&](const std::string& split, std::initializer_list<const char*> others) {
    std::error_code ignored;
    for (const char* other : others)
      if (!fs::exists(fs::path(folder) / split, ignored) && fs::exists(fs::path(folder) / other, ignored))
        return (fs::path(folder) / other).string();
    return (fs::path(folder) / split).string();
  };
  job.set_text("data.train.path", inside(job.has("train_split") ? job.text("train_split") : "train", {"training"}));
  job.set("data.train.format", "imagefolder");
  job.set_text("data.val.path", inside(job.has("val_split") ? job.text("val_split") : "val", {"validation", "test"}));
  if (job.has("num_classes")) job.tell("num_classes", "not needed: classes are the folders of the data");
}

void finish_rule(Moving& job) {
  const std::string name = job.has("opt") ? job.text("opt") : "sgd";
  const auto found = std::ranges::find(kTimmOptimizers, std::string_view(name), &Words::value_type::first);
  const bool is_known = found != kTimmOptimizers.end();
  if (!is_known) job.tell("opt", "no such update rule here: `gputrain list optimizers`; the job takes sgd");
  const std::string type = is_known ? std::string(found->second) : "sgd";
  job.set("optimizer.type", type, job.has("opt") ? "" : kTimm);
  if (type == "sgd") {
    job.set("optimizer.momentum", job.has("momentum") ? job.text("momentum") : "0.9", job.has("momentum") ? "" : kTimm);
    if (name != "momentum") job.set("optimizer.nesterov", "true", "as timm's " + name);
  } else if (job.has("momentum")) {
    job.tell("momentum", "not used: " + type + " has betas");
  }
  job.set("optimizer.weight_decay", job.has("weight_decay") ? job.text("weight_decay") : "2e-5",
          job.has("weight_decay") ? "" : kTimm);
  if (job.has("opt_eps") && type != "sgd" && type != "lion") job.set("optimizer.eps", job.text("opt_eps"));
  if (job.has("opt_betas") && type != "sgd") job.set("optimizer.betas", in_list(job, "opt_betas"));
  const double batch = job.number("batch_size", 128) * job.number("grad_accum_steps", 1);
  if (job.has("lr")) return job.set("optimizer.lr", job.text("lr"));
  const double base = job.number("lr_base", 0.1), size = job.number("lr_base_size", 256);
  const bool adapts = name.find("ada") != std::string::npos || name.find("lamb") != std::string::npos;
  if (job.text("lr_base_scale") == "sqrt" || (!job.has("lr_base_scale") && adapts)) {
    job.set("optimizer.lr", fmt::format("{:.6g}", base * std::sqrt(batch / size)),
            fmt::format("lr_base times the root of {:g}/{:g}, for one rank", batch, size));
  } else {
    job.set("optimizer.lr", fmt::format("{:g}", base), job.has("lr_base") ? "" : kTimm);
    job.set("optimizer.lr_base_batch_size", fmt::format("{:g}", size));
  }
}

}  // namespace

const Table& timm_rows() {
  static const Table kRows = timm_table();
  return kRows;
}

void finish_timm(Moving& job) {
  finish_timm_model(job);
  finish_data(job);
  finish_timm_images(job);
  finish_rule(job);
  finish_timm_rates(job);
  job.set("train.micro_batch_size", job.has("batch_size") ? job.text("batch_size") : "128",
          job.has("batch_size") ? "" : kTimm);
  if (job.number("grad_accum_steps", 1) > 1) job.set("train.gradient_accumulation_steps", job.text("grad_accum_steps"));
  if (job.sets("task.config.loss") || job.sets("task.config.target_threshold") || job.sets("task.config.sum_classes"))
    job.set("task.type", "classification");
  if (!job.is_on("bce_loss"))
    job.set("train.label_smoothing", job.has("smoothing") ? job.text("smoothing") : "0.1",
            job.has("smoothing") ? "" : kTimm);
  else if (job.is_on("smoothing"))
    job.set("train.label_smoothing", job.text("smoothing"));
  if (job.is_on("amp")) job.set("precision", job.text("amp_dtype") == "bfloat16" ? "bf16" : "fp16");
  if (job.is_on("model_ema"))
    job.set("train.ema.decay", job.has("model_ema_decay") ? job.text("model_ema_decay") : "0.9998");
  if (job.is_on("model_ema") && !job.is_on("model_ema_warmup")) job.set("train.ema.warmup", "false");
  job.otherwise("eval.interval", "1ep", "");
  job.otherwise("seed", "42", kTimm);
}

}  // namespace gputrain::app::foreign

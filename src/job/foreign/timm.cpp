// Jobs of timm's train.py 1.0: its args.yaml, --config files and command lines.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;
namespace fs = std::filesystem;

const std::string kTimm = "timm's default";

const Words kTimmModels{{"resnet18", "resnet18"},
                        {"resnet34", "resnet34"},
                        {"resnet50", "resnet50"},
                        {"resnet101", "resnet101"},
                        {"resnet152", "resnet152"},
                        {"vit_tiny_patch16_224", "vit_ti_16"},
                        {"vit_small_patch16_224", "vit_s_16"},
                        {"vit_base_patch16_224", "vit_b_16"},
                        {"deit_tiny_patch16_224", "vit_ti_16"},
                        {"deit_small_patch16_224", "vit_s_16"},
                        {"deit_base_patch16_224", "vit_b_16"},
                        {"convnext_tiny", "convnext_tiny"},
                        {"convnext_small", "convnext_small"},
                        {"convnext_base", "convnext_base"},
                        {"convnext_large", "convnext_large"},
                        {"tf_efficientnetv2_s", "efficientnet_v2_s"},
                        {"tf_efficientnetv2_m", "efficientnet_v2_m"},
                        {"tf_efficientnetv2_l", "efficientnet_v2_l"},
                        {"mobilenetv3_large_100", "mobilenet_v3_large"},
                        {"mobilenetv3_small_100", "mobilenet_v3_small"}};

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

std::string in_list(const Moving& job, const std::string& key) {
  const Node* value = job.given(key);
  if (value == nullptr) return "";
  Node bare = *value;
  bare.key.clear();
  return bare.kind == Node::Kind::list ? config::to_flow(bare) : "[" + bare.text + "]";
}

void move_drop(Moving& job, const std::string&, const Node& value) {
  if (!is_off(value)) job.set("model.config.dropout", value.text);
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
                  "min_lr",
                  "cooldown_epochs",
                  "decay_epochs",
                  "decay_milestones",
                  "decay_rate",
                  "patience_epochs",
                  "no_aug",
                  "scale",
                  "ratio",
                  "hflip",
                  "vflip",
                  "color_jitter",
                  "aa",
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
                  "mixup_off_epoch"}),
      to({"validation_batch_size"}, "eval.batch_size"),
      flag({"grad_checkpointing"}, "train.activation_checkpointing", "block"),
      flag({"channels_last"}, "train.channels_last", "true"),
      to({"clip_grad"}, "train.max_grad_norm"),
      words({"clip_mode"}, "", {{"norm", ""}}, "gradients are clipped by their norm"),
      to({"layer_decay"}, "optimizer.layer_decay"),
      to({"drop_path"}, "model.config.drop_path"),
      by({"drop"}, move_drop),
      told({"drop_connect", "drop_block", "bn_momentum", "bn_eps", "split_bn", "gp", "in_chans", "model_kwargs",
            "head_init_scale", "head_init_bias", "torchcompile_mode"},
           "no such option of a model here: `gputrain describe model NAME`"),
      to({"mixup"}, "data.image.augment.mix.mixup"),
      to({"cutmix"}, "data.image.augment.mix.cutmix"),
      to({"mixup_prob"}, "data.image.augment.mix.probability"),
      to({"mixup_switch_prob"}, "data.image.augment.mix.switch_probability"),
      words({"mixup_mode"}, "", {{"batch", ""}}, "a micro-batch is mixed as a whole"),
      told({"cutmix_minmax", "jsd_loss", "aug_splits", "resplit", "aug_repeats", "train_crop_mode", "grayscale_prob",
            "gaussian_blur_prob", "color_jitter_prob", "force_color_jitter"},
           "nothing here does this: `gputrain describe data.image.augment`"),
      flag({"bce_loss"}, "task.config.loss", "bce"),
      flag({"bce_sum"}, "task.config.sum_classes", "true"),
      to({"bce_target_thresh"}, "task.config.target_threshold"),
      told({"bce_pos_weight"}, "task.config.class_weights weighs classes"),
      words({"interpolation", "train_interpolation"}, "", {{"bilinear", ""}},
            "images are resized bilinearly, with as many pixels as they shrink by"),
      flag({"sync_bn"}, "parallel.sync_bn", "true"),
      told({"dist_bn"}, "not needed: running statistics are rank 0's, or of all ranks with parallel.sync_bn"),
      told({"model_ema_force_cpu", "model_ema_warmup"}, "not needed: train.ema.warmup"),
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
            "log_interval",
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
      told({"lr_noise*", "lr_cycle_*", "lr_k_decay", "warmup_prefix", "opt_kwargs", "sched_kwargs", "opt_caution",
            "opt_foreach"},
           "no such option here: `gputrain describe lr_scheduler cosine`"),
      to({"workers"}, "data.num_workers"),
      to({"checkpoint_hist"}, "checkpoint.keep_last"),
      to({"output"}, "output_dir"),
      to({"experiment"}, "name"),
      words({"eval_metric"}, "checkpoint.metric", {{"top1", "top1"}, {"top5", "top5"}, {"loss", "loss"}},
            "the task's own metric decides which checkpoint is best"),
      by({"tta"}, move_tta),
      flag({"log_wandb"}, "log.wandb", "{}"),
      to({"wandb_project"}, "log.wandb.project"),
      told({"wandb_*"}, "log.wandb writes a folder for `wandb sync`"),
      by({"val_interval"}, move_val_interval),
      told({"resume"}, "a run goes on from its own newest checkpoint by itself"),
      told({"naflex_*", "naflex", "kd_*", "nproc_per_node", "nnodes", "master_port", "master_addr"},
           "`gputrain launch` starts the ranks"),
  };
}

void finish_model(Moving& job) {
  std::string name = job.has("model") ? job.text("model") : "resnet50";
  const std::string whole = name;
  name = name.substr(0, name.find('.'));
  const auto found = std::ranges::find(kTimmModels, std::string_view(name), &Words::value_type::first);
  if (found == kTimmModels.end())
    throw Error(ExitCode::usage, {.what = "gputrain has no model '" + whole + "'",
                                  .where = "model",
                                  .hint = "`gputrain list models` shows those it has; timm's vit, resnet, convnext, "
                                          "tf_efficientnetv2 and mobilenetv3 are among them"});
  job.set("model.type", std::string(found->second), job.has("model") ? "" : kTimm);
  if (job.has("initial_checkpoint")) {
    job.set_text("model.pretrained", job.text("initial_checkpoint"));
  } else if (job.is_on("pretrained")) {
    if (whole == name)
      job.tell("pretrained", "name the weights: model.pretrained: timm/" + name + ".TAG, as on the Hub");
    else {
      job.set_text("model.pretrained", "timm/" + whole);
      job.remark("`gputrain fetch timm/" + whole + "` brings the weights here.");
    }
  }
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
  job.tell("num_classes", "not needed: classes are the folders of the data");
}

void finish_images(Moving& job) {
  const Node* extent = job.given("input_size");
  std::string size = job.has("img_size") ? job.text("img_size") : "224";
  if (extent != nullptr && extent->parts.size() == 3) size = extent->parts.back().text;
  job.set("data.image.size", size);
  for (const char* key : {"mean", "std"})
    if (job.has(key)) job.set(std::string("data.image.") + key, in_list(job, key));
  const std::string model = job.value_of("model.type");
  const double pixels = std::atof(size.c_str());  // 0: no number, which validation refuses
  const double crop = job.number("crop_pct", model.starts_with("vit") ? 0.9 : 0.875);
  if (crop > 0 && crop <= 1)
    job.set("data.image.eval.resize", fmt::format("{}", static_cast<int>(std::floor(pixels / crop))),
            fmt::format("crop_pct {}", crop));
  const std::string augment = "data.image.augment.";
  if (job.is_on("no_aug")) return;
  const auto given = [&](const char* key, const char* fallback) { return job.has(key) ? job.text(key) : fallback; };
  job.set(augment + "random_resized_crop", job.has("scale") ? in_list(job, "scale") : "[0.08, 1.0]",
          job.has("scale") ? "" : kTimm);
  if (job.has("ratio")) job.tell("ratio", "a crop is stretched by up to 4/3");
  job.set(augment + "hflip", given("hflip", "0.5"), job.has("hflip") ? "" : kTimm);
  if (job.is_on("vflip")) job.set(augment + "vflip", job.text("vflip"));
  if (job.has("aa")) {
    job.set_text(augment + "auto_augment", job.text("aa"));
  } else if (!job.has("color_jitter") || job.is_on("color_jitter")) {
    job.set(augment + "color_jitter", given("color_jitter", "0.4"), job.has("color_jitter") ? "" : kTimm);
  }
  if (job.is_on("reprob")) {
    job.set(augment + "random_erasing.probability", job.text("reprob"));
    job.set(augment + "random_erasing.mode", given("remode", "pixel"), job.has("remode") ? "" : kTimm);
    if (job.has("recount")) job.set(augment + "random_erasing.count", job.text("recount"));
  }
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

void finish_rates(Moving& job) {
  const std::string name = job.has("sched") ? job.text("sched") : "cosine";
  const std::string epochs = job.has("epochs") ? job.text("epochs") : "300";
  job.set("train.max_epochs",
          fmt::format("{:g}", job.number("epochs", 300) + (name == "cosine" ? job.number("cooldown_epochs", 0) : 0)),
          job.has("epochs") ? "" : kTimm);
  if (job.is_on("cooldown_epochs"))
    job.tell("cooldown_epochs", "they are part of train.max_epochs, and the curve ends with them");
  const std::string warmup = job.has("warmup_epochs") ? job.text("warmup_epochs") : "5";
  if (warmup != "0") job.set("lr_scheduler.warmup", warmup + "ep", job.has("warmup_epochs") ? "" : kTimm);
  if (job.is_on("warmup_lr")) job.tell("warmup_lr", "the rate rises from almost 0");
  if (name == "cosine" || name == "poly") {
    job.set("lr_scheduler.type", name == "cosine" ? "cosine" : "polynomial");
    if (job.is_on("min_lr")) job.set("lr_scheduler.min_lr", job.text("min_lr"));
  } else if (name == "step") {
    job.set("lr_scheduler.type", "exponential");
    job.set("lr_scheduler.step_size", (job.has("decay_epochs") ? job.text("decay_epochs") : "90") + "ep");
    job.set("lr_scheduler.gamma", job.has("decay_rate") ? job.text("decay_rate") : "0.1");
  } else if (name == "multistep") {
    job.set("lr_scheduler.type", "multistep");
    std::string list;
    if (const Node* given = job.given("decay_milestones"))
      for (const Node& part : given->parts) list += (list.empty() ? "" : ", ") + part.text + "ep";
    job.set("lr_scheduler.milestones", "[" + (list.empty() ? "90ep, 180ep, 270ep" : list) + "]");
    job.set("lr_scheduler.gamma", job.has("decay_rate") ? job.text("decay_rate") : "0.1");
  } else if (name == "none" || name == "constant") {
    job.set("lr_scheduler.type", "constant");
  } else {
    job.tell("sched", "no such curve here: `gputrain list lr_schedulers`; the rate stays constant");
    job.set("lr_scheduler.type", "constant");
  }
  if (!job.is_on("sched_on_updates"))
    job.remark("timm changes the rate once an epoch unless told --sched-on-updates; gputrain at each step.");
}

}  // namespace

const Table& timm_rows() {
  static const Table kRows = timm_table();
  return kRows;
}

void finish_timm(Moving& job) {
  finish_model(job);
  finish_data(job);
  finish_images(job);
  finish_rule(job);
  finish_rates(job);
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
  if (job.is_on("mixup_off_epoch")) job.tell("mixup_off_epoch", "images are mixed until the end");
  if (job.is_on("amp")) job.set("precision", job.text("amp_dtype") == "bfloat16" ? "bf16" : "fp16");
  if (job.is_on("model_ema"))
    job.set("train.ema.decay", job.has("model_ema_decay") ? job.text("model_ema_decay") : "0.9998");
  job.otherwise("eval.interval", "1ep", "");
  job.otherwise("seed", "42", kTimm);
}

}  // namespace gputrain::app::foreign

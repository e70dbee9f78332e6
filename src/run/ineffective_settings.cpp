#include "gputrain/run/ineffective_settings.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "gputrain/core/numbers.hpp"
#include "gputrain/job/job_changes.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

/// A key, or a group of keys if it ends with a dot, that is idle if `applies`.
struct Rule {
  std::string key;
  bool applies;
  std::string reason;
  std::string verdict = "has no effect";
};

std::vector<Rule> rules_of_evaluation(const JobSpec& spec, const JobDatasets& datasets) {
  const bool has_val = datasets.val != nullptr, has_any = has_val || datasets.test != nullptr;
  const bool is_text = datasets.tokens_per_sample() > 0;
  const std::string no_val = "there is no data.val", none = "there is neither data.val nor data.test";
  return {{"eval.interval", !has_val, no_val},
          {"eval.at_start", !has_val, no_val},
          {"eval.batch_size", !has_any, none},
          {"eval.max_tokens", !has_any, none},
          {"eval.max_tokens", !is_text, "the data has no tokens"},
          {"eval.sample.top_k", spec.eval.sample && spec.eval.sample->top_k && spec.eval.sample->temperature == 0,
           "eval.sample.temperature is 0, which always takes the most likely token"},
          {"checkpoint.metric", !has_val, no_val},
          {"eval.early_stopping.", !has_val, no_val},
          {"checkpoint.keep_best", !has_val && spec.checkpoint.keep_best > 0, no_val},
          {"data.image.eval.", !has_any, none}};
}

/// Returns whether include and exclude, which filter a folder of texts, are set for a single file.
bool is_one_file(const JobSpec& spec) {
  std::error_code ignored;
  return spec.data.train.format.name == "text" && !std::filesystem::is_directory(spec.data.train.path, ignored);
}

/// Returns whether a role of the data is read from lists of images, or from records of texts.
bool reads_lists(const JobSpec& spec) {
  const auto has_columns = [](const std::string& format) {
    return format == "csv" || format == "tsv" || format == "jsonl" || format == "parquet";
  };
  const auto is_list = [&](const std::optional<data::HeldOutSource>& source) {
    return source && has_columns(source->format.name);
  };
  return has_columns(spec.data.train.format.name) || is_list(spec.data.val) || is_list(spec.data.test);
}

std::vector<Rule> rules_of_data(const JobSpec& spec, const JobDatasets& datasets) {
  const std::string& format = spec.data.train.format.name;
  const auto& longest = spec.data.text.max_length.value;
  const std::string one_file = "data.train.path is not a folder";
  const data::SampleLayout& layout = datasets.train->layout();
  const bool is_image = layout.is_image(), is_text = layout.token_count() > 0;
  const data::Field* target = layout.target();
  const bool has_classes = target != nullptr && target->type == at::kLong && target->sizes.empty();
  const bool is_limit = format != "text" && format != "tokens";  // all samples may be shorter
  const auto changes = spec.data.image.augment.active();
  const bool has_policy = std::ranges::any_of(changes, [](const auto& one) { return one.name == "auto_augment"; });
  const bool has_own_tokens = is_text && !datasets.train->tokenizer();
  return {{"data.image.", !is_image, is_text ? "the data is text" : "the data holds no images"},
          {"data.image.augment.", format == "synthetic", "synthetic images are not augmented"},
          {"data.image.augment.color_jitter", has_policy, "timm leaves it out there; 0 does so, too",
           "acts beside auto_augment"},
          {"data.image.augment.mix.", !has_classes, "only images with a class each are mixed"},
          {"data.image.columns.", !reads_lists(spec), "no format of this job has columns"},
          {"train.label_smoothing", target != nullptr && at::isFloatingType(target->type),
           "the targets are numbers or sets of classes"},
          {"data.text.", !is_text, is_image ? "the data is images" : "the data holds no text"},
          {"data.text.tokenizer", has_own_tokens, "format " + format + " brings its own tokens"},
          {"data.text.max_length", is_text && !is_limit && longest && *longest > layout.token_count(),
           "it takes " + counted(layout.token_count(), "token"), "is more than the model takes"},
          {"data.train.include", is_one_file(spec), one_file},
          {"data.train.exclude", is_one_file(spec), one_file},
          {"data.prefetch_factor", spec.data.num_workers.value == 0, "data.num_workers is 0: nothing is read ahead"}};
}

/// Returns whether training ends during the warmup of the learning rate.
bool ends_in_warmup(const optim::Schedule& schedule, const train::Plan& plan, double peak) {
  if (plan.is_time_limited()) return false;
  const double last = schedule.lr(plan.curve_steps() - 1);
  return last < peak && schedule.lr(plan.curve_steps()) > last;
}

/// Returns whether the global batch is too small for the micro-batch that the job sets. A batch that was kept for
/// another number of ranks has its own message.
bool is_micro_batch_cut(const JobSpec& spec, const TrainingSetup& setup) {
  const auto& wanted = spec.train.micro_batch_size;
  if (!wanted || wanted->is_auto() || setup.micro_batch.micro_batch > 0) return false;
  const auto& batch = setup.plan.batch;
  return batch.aliases == 0 && *wanted->value > batch.micro_batch;
}

bool is_accumulation_cut(const JobSpec& spec, const train::BatchPlan& batch) {
  const auto& wanted = spec.train.gradient_accumulation_steps.value;
  return wanted && spec.train.names_global_batch() && *wanted > batch.accumulation;
}

std::vector<Rule> rules_of_training(const JobSpec& spec, const TrainingSetup& setup) {
  const auto& plan = setup.plan;
  const optim::Schedule& schedule = *setup.optimizer_stack.schedule;
  const double peak = spec.optimizer.peak_lr(plan.batch.global_batch);
  constexpr int64_t kMostInNarrowSums = 128;  // with 512 micro-batches, bf16 lost a seventh of a gradient's norm
  const bool has_routers = setup.datasets.task->takes_last_layer_alone();
  const std::string no_routers = "only a model that learns the next token has losses of its routers";
  const auto nonfinite = [&](const std::string& wanted) { return "train.nonfinite is not " + wanted; };
  const comm::Mesh& mesh = setup.context.groups.mesh();
  const bool is_alone = mesh.ranks == 1;
  const std::string one_rank = "there is one rank; gputrain launch --nproc-per-node starts more";
  return {{"parallel.tensor", is_alone, one_rank},
          {"parallel.pipeline", is_alone, one_rank},
          {"parallel.context", is_alone, one_rank},
          {"parallel.shard", is_alone, one_rank},
          {"parallel.replicate", is_alone, one_rank},
          {"train.max_skips_in_a_row", spec.train.nonfinite != "skip", nonfinite("skip")},
          {"train.max_rollbacks", spec.train.nonfinite != "rollback", nonfinite("rollback")},
          {"train.micro_batch_size", is_micro_batch_cut(spec, setup),
           "that is " + counted(plan.batch.micro_batch, "sample"), "is more than a rank's share of the global batch"},
          {"train.gradient_accumulation_steps", is_accumulation_cut(spec, plan.batch),
           "that is " + counted(plan.batch.accumulation, "sample"), "is more than a rank's share of the global batch"},
          {"train.offload.", setup.context.device.is_cpu(), "what waits is copied within the same memory",
           "saves no memory on a CPU"},
          {"data.image.augment.mix.", plan.batch.micro_batch == 1,
           "images are mixed within a micro-batch, and each has one image"},
          {"model.config.router_aux_loss_coef", !has_routers, no_routers},
          {"model.config.router_z_loss_coef", !has_routers, no_routers},
          {"optimizer.master", spec.optimizer.has_narrow_master() && plan.batch.accumulation > kMostInNarrowSums,
           "take larger ones, or fp32",
           "adds up " + counted(plan.batch.accumulation, "micro-batch") + " in bf16, which loses small gradients"},
          {"train.channels_last", setup.datasets.tokens_per_sample() > 0, "the data is text"},
          {"parallel.bucket_cap_mb", setup.built.arena->keeps_owned_values_only(),
           "parallel.shard: parameters sends one unit of the model at a time"},
          {"checkpoint.notice.interval", !spec.checkpoint.notice.watches(), "checkpoint.notice.action is ignore"},
          {"lr_scheduler.warmup", ends_in_warmup(schedule, plan, peak),
           "training ends after " + counted(plan.total_steps, "step") + ", at a rate of " +
               monitor::significant(schedule.lr(plan.curve_steps() - 1)) + " instead of " + monitor::significant(peak),
           "is longer than the run"}};
}

}  // namespace

std::vector<std::string> ineffective_settings(const Job& job, const TrainingSetup& setup) {
  const JobSpec& spec = job.spec();
  std::vector<Rule> rules = rules_of_evaluation(spec, setup.datasets);
  for (const auto& more : {rules_of_data(spec, setup.datasets), rules_of_training(spec, setup)})
    rules.insert(rules.end(), more.begin(), more.end());
  const auto defaults = default_settings(spec);
  std::vector<std::string> found;
  for (const auto& setting : job.loaded.settings()) {
    const auto usual = defaults.find(setting.key);
    const std::string origin = job.loaded.origin(setting.key);
    if (origin == "default" || (usual != defaults.end() && usual->second == setting.value)) continue;
    const auto rule = std::find_if(rules.begin(), rules.end(), [&](const Rule& each) {
      return each.applies && (each.key.ends_with('.') ? setting.key.starts_with(each.key) : setting.key == each.key);
    });
    if (rule != rules.end()) found.push_back(origin + ": " + setting.key + " " + rule->verdict + ": " + rule->reason);
  }
  return found;
}

}  // namespace gputrain::app

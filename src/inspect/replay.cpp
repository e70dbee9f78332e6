#include "gputrain/inspect/replay.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/resume/attempt_history.hpp"
#include "gputrain/resume/checkpointing.hpp"
#include "gputrain/resume/record.hpp"
#include "gputrain/setup/references.hpp"
#include "gputrain/setup/training_loop.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/training_state.hpp"
#include "gputrain/setup/weights.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/evaluator.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::app {
namespace {

using checkpoint::Checkpoint;

const std::vector<std::string> kCompared{"train/loss", "train/grad_norm", "train/lr"};

/// Metrics in metrics.jsonl, by step; null if a number was not finite.
using Curve = std::map<int64_t, std::map<std::string, std::optional<double>>>;

/// Reads lines of one kind, with the given metrics that they have.
Curve read_curve(const std::filesystem::path& path, const std::string& kind, const std::vector<std::string>& metrics) {
  Curve curve;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    const auto line = parse_json(text);
    const bool is_whole = line.is_object() && line.contains("step") && line["step"].is_number_integer();
    if (!is_whole || line.value("kind", "") != kind) continue;
    auto& values = curve[line["step"].get<int64_t>()];
    for (const std::string& name : metrics) {
      if (!line.contains(name)) continue;
      values[name] = line[name].is_number() ? std::optional(line[name].get<double>()) : std::nullopt;
    }
  }
  return curve;
}

/// Steps to replay, and the checkpoint to start from.
struct ReplayWindow {
  RunFolder folder;
  int64_t step = 0;
  Checkpoint from;
  std::optional<Checkpoint> at_step;  // weights to compare with
  Curve curve;                        // recorded metrics of the repeated steps
  std::vector<RateChange> rates;      // changes by orders to the run
};

std::optional<Checkpoint> open_if_good(const std::filesystem::path& folder) {
  try {
    return Checkpoint::open(folder);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Checkpoint newest_before(int64_t step, const std::vector<checkpoint::Listed>& listed,
                         const std::filesystem::path& where) {
  std::string others = "there is none at all";
  for (const auto& each : listed) {  // newest first
    if (!each.problem.empty()) continue;
    if (each.step < step) {
      if (auto found = open_if_good(each.folder)) return std::move(*found);
    } else {
      others = "the oldest one is of step " + grouped(each.step);
    }
  }
  throw Error(ExitCode::checkpoint, {.what = "there is no good checkpoint before step " + grouped(step) + "; " + others,
                                     .where = where.string(),
                                     .hint = "a later step; checkpoint.keep_every keeps more checkpoints"});
}

/// Throws if the run rolled back between `begin` and `step`: replay repeats only steps, not rollbacks.
void refuse_rollbacks(const std::vector<nlohmann::json>& ledger, int64_t begin, int64_t step) {
  for (const auto& line : ledger) {
    const int64_t at = line.value("kind", "") == "rollback" ? line.value("step", int64_t{-1}) : -1;
    if (at <= begin || at >= step) continue;
    throw Error(ExitCode::usage, {.what = "the run rolled back at step " + grouped(at) + ", between step " +
                                          grouped(begin) + ", where the replay would start, and step " + grouped(step),
                                  .hint = "a step up to " + grouped(at) + ", or one after a later checkpoint"});
  }
}

/// Throws if an order of an older version, whose rate the ledger does not have, lies between `begin` and `step`.
void refuse_unknown_rates(const std::vector<RateChange>& changes, int64_t begin, int64_t step) {
  for (const RateChange& change : changes) {
    if (change.is_known || change.step < begin || change.step >= step) continue;
    throw Error(ExitCode::usage,
                {.what = "an order changed the learning rate after step " + grouped(change.step) +
                         ", and this ledger of an older version does not have the rate",
                 .hint = "a step up to " + grouped(change.step) + ", or one after a later checkpoint"});
  }
}

bool is_rolled_back_at(const std::vector<nlohmann::json>& ledger, int64_t step) {
  return std::any_of(ledger.begin(), ledger.end(), [&](const auto& line) {
    return line.value("kind", "") == "rollback" && line.value("step", int64_t{-1}) == step;
  });
}

ReplayWindow find_window(const std::filesystem::path& run, int64_t step, const std::vector<nlohmann::json>& ledger) {
  const RunFolder folder{run};
  if (!std::filesystem::exists(folder.resolved())) {
    throw Error(ExitCode::usage,
                {.what = "this is not a run folder: it has no job.resolved.yaml", .where = run.string()});
  }
  Curve curve = read_curve(folder.metrics(), "train", kCompared);
  const int64_t branch = branch_of(folder, {}).number;
  const auto listed = checkpoint::list_checkpoints(checkpoint::branch_folder(folder.checkpoints(), branch));
  const int64_t reached = std::max(curve.empty() ? 0 : curve.rbegin()->first, listed.empty() ? 0 : listed.front().step);
  if (step > reached) {
    throw Error(ExitCode::usage,
                {.what = "step " + grouped(step) + " is after the last recorded step of the run, " + grouped(reached),
                 .where = run.string()});
  }
  ReplayWindow window{.folder = folder, .step = step, .from = newest_before(step, listed, folder.checkpoints())};
  const auto same = std::find_if(listed.begin(), listed.end(), [&](const auto& each) { return each.step == step; });
  if (same != listed.end() && !is_rolled_back_at(ledger, step)) window.at_step = open_if_good(same->folder);
  refuse_rollbacks(ledger, window.from.step(), step);
  window.rates = rate_changes_in(ledger, branch);
  refuse_unknown_rates(window.rates, window.from.step(), step);
  const auto next = curve.upper_bound(step);
  window.curve.insert(curve.upper_bound(window.from.step()), next);
  if (!window.curve.empty() || window.at_step) return window;
  throw Error(ExitCode::usage, {.what = "there is no record of steps " + grouped(window.from.step() + 1) + " to " +
                                        grouped(step) + " to compare with",
                                .where = folder.metrics().string(),
                                .hint = next == curve.end() ? "" : "--step " + std::to_string(next->first)});
}

/// Hook that logs at the steps at which the run logged, and compares.
class ReplayHook final : public train::Hook {
 public:
  /// Keeps the references. `evaluations`: the recorded ones, of one metric.
  ReplayHook(train::LogHook& log, const ReplayWindow& window, Curve evaluations, TrainingSetup& setup,
             ReplayReport& report)
      : log_(log),
        curve_(window.curve),
        rates_(window.rates),
        evaluations_(std::move(evaluations)),
        setup_(setup),
        report_(report) {}

  void before_training(train::Progress& progress) override { follow_orders(progress); }

  train::Stop after_step(train::Progress& progress, const train::StepResult& result, bool) override {
    const auto recorded = curve_.find(progress.step);
    log_.after_step(progress, result, recorded != curve_.end());
    if (recorded != curve_.end()) compare(progress, recorded->second);
    const auto& plan = setup_.plan;
    const bool was_shared = plan.eval.at_step(progress.step) || plan.save.at_step(progress.step);
    if (was_shared) train::synchronise_buffers(*setup_.built.model, setup_.context.groups);
    follow(progress);
    follow_orders(progress);
    return train::Stop::none;
  }

 private:
  void follow_orders(train::Progress& progress) const {
    for (const RateChange& change : rates_)
      if (change.step <= progress.step) progress.ordered_rate = change.rate;
  }

  /// Gives recorded evaluations to the schedule, which may depend on them; a replay does not repeat them.
  void follow(train::Progress& progress) const {
    const auto evaluated = evaluations_.find(progress.step);
    if (evaluated == evaluations_.end()) return;
    for (const auto& [name, value] : evaluated->second) {
      setup_.optimizer_stack.schedule->follow(
          {.metric = name, .value = value.value_or(std::nan("")), .smaller_is_better = tasks::smaller_is_better(name)},
          progress.lr_feedback);
    }
  }

  void compare(const train::Progress& progress, const std::map<std::string, std::optional<double>>& recorded) {
    report_.steps.push_back(progress.step);
    for (const auto& [name, value] : recorded) {
      const double replayed = report_.last[name] = progress.metrics.at(name);
      const auto finite = std::isfinite(replayed) ? std::optional(replayed) : std::nullopt;
      if (finite != value) report_.metrics.push_back({progress.step, name, value, finite});
    }
  }

  train::LogHook& log_;
  const Curve& curve_;
  const std::vector<RateChange>& rates_;
  Curve evaluations_;
  TrainingSetup& setup_;
  ReplayReport& report_;
};

/// Differences of what ranks compared, by file, tensor and slice. Ranks that hold the same slice compare it alike.
using Differences = std::map<std::array<std::string, 3>, TensorDifference>;

std::string text_of(const std::optional<checkpoint::Slice>& slice) {
  if (!slice) return {};
  std::string text = std::to_string(slice->begin);
  if (!slice->cut) return text;
  text += fmt::format(" of dimension {}", slice->cut->dim);
  for (const auto& range : slice->cut->ranges) text += fmt::format(" {}-{}", range.begin, range.end);
  return text;
}

void compare_tensors(const std::string& name, const checkpoint::Part& part,
                     const std::vector<checkpoint::Part::Target>& live, Differences& differences) {
  for (const auto& [tensor, value, slice] : live) {
    at::Tensor saved = part.tensor(tensor);
    if (slice) saved = checkpoint::elements_of(saved, *slice, value.numel()).view(value.sizes());
    differences[{name, tensor, text_of(slice)}] =
        difference_between(saved.contiguous(), value.to(at::kCPU).contiguous());
  }
}

/// Adds what the other ranks found: with parameters, states or layers in shards each compares its own. Every rank must
/// call.
Differences of_all_ranks(const Differences& own, comm::ProcessGroups& groups) {
  auto rows = nlohmann::json::array();
  for (const auto& [key, found] : own) {
    rows.push_back({key, found.elements, found.differing, std::isinf(found.largest_absolute), found.largest_absolute,
                    std::isinf(found.largest_relative), found.largest_relative});
  }
  const auto number = [](const nlohmann::json& is_infinite, const nlohmann::json& value) {
    return is_infinite.get<bool>() ? std::numeric_limits<double>::infinity() : value.get<double>();
  };
  Differences all;
  for (const std::string& told : groups.from_each_rank(rows.dump(), "differences of a replay")) {
    for (const auto& row : nlohmann::json::parse(told)) {
      all[row[0].get<Differences::key_type>()] = {.elements = row[1].get<int64_t>(),
                                                  .differing = row[2].get<int64_t>(),
                                                  .largest_absolute = number(row[3], row[4]),
                                                  .largest_relative = number(row[5], row[6])};
    }
  }
  return all;
}

void report_tensors(const Differences& differences, ReplayReport& report) {
  std::vector<ReplayReport::Tensor> whole;
  for (const auto& [key, found] : differences) {
    if (whole.empty() || whole.back().file != key[0] || whole.back().name != key[1])
      whole.push_back({key[0], key[1], {}});
    whole.back().difference.add(found);
  }
  report.tensors = std::ssize(whole);
  for (auto& tensor : whole)
    if (tensor.difference.differing > 0) report.tensors_differing.push_back(std::move(tensor));
}

std::string up_to_rounding(std::string_view what, const std::string& then, const std::string& now) {
  return fmt::format("{} was {} then and is {} now: expect equality up to rounding only", what, then, now);
}

/// Returns notes on changed settings that affect only the order of summation.
std::vector<std::string> notes_on_settings(const Checkpoint& then, const std::vector<config::Setting>& today) {
  constexpr std::string_view kDecide[] = {"train.micro_batch_size", "train.gradient_accumulation_steps",
                                          "train.channels_last",    "train.cuda_graphs",
                                          "parallel.shard",         "parallel.bucket_cap_mb",
                                          "parallel.tensor",        "parallel.pipeline",
                                          "deterministic"};
  const nlohmann::json saved = then.state().at("settings");
  std::vector<std::string> notes;
  for (const config::Setting& setting : today) {
    const std::string before = saved.value(setting.key, setting.value);
    if (std::ranges::find(kDecide, setting.key) == std::end(kDecide) || before == setting.value) continue;
    notes.push_back(up_to_rounding(setting.key, before, setting.value));
  }
  return notes;
}

/// Returns notes on differences in environment and data that explain different results.
std::vector<std::string> notes_on(const std::vector<nlohmann::json>& ledger, int64_t step, const nlohmann::json& now) {
  nlohmann::json then;  // last attempt that took the step
  for (const auto& line : ledger) {
    if (line.value("kind", "") == "attempt" && line.value("step", int64_t{0}) < step) then = line;
  }
  std::vector<std::string> notes;
  for (const char* key : {"world_size", "threads", "device", "version"}) {
    if (!then.is_object() || !then.contains(key) || then[key] == now.at(key)) continue;
    std::string note = up_to_rounding(key, then[key].dump(), now.at(key).dump());
    if (std::string_view(key) == "world_size" && then[key].is_number_integer())
      note +=
          fmt::format("; gputrain launch --nproc-per-node {} replay ... starts as many ranks", then[key].get<int>());
    notes.push_back(std::move(note));
  }
  const nlohmann::json::json_pointer samples("/order/samples");
  if (then.is_object() && then.contains(samples) && then[samples] != now.at(samples)) {
    notes.push_back(fmt::format("the training data had {} samples then and has {} now: the replay uses other samples",
                                then[samples].dump(), now.at(samples).dump()));
  }
  if (then.is_object() && then.contains("target_names") && then["target_names"] != now.value("target_names", ""))
    notes.emplace_back("the classes or characters of the training data changed: the replay has other labels");
  if (then.is_object() && then.contains("content") && now.contains("content") && then["content"] != now["content"])
    notes.emplace_back("the files of the training data have other content now: the replay uses other samples");
  return notes;
}

void take_up(const Checkpoint& from, TrainingState& state, train::Progress& progress) {
  try {
    state.take_up(from, progress, /*accept_changes=*/false);
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    throw Error(ExitCode::usage, {.what = error.parts().what,
                                  .where = error.parts().where,
                                  .hint = "the run's job was changed after this checkpoint: choose "
                                          "a step after a newer checkpoint"});
  }
}

ReplayReport run_again(const ReplayWindow& window, const Job& job, TrainingSetup& setup,
                       const std::vector<nlohmann::json>& ledger) {
  monitor::Recorder no_sinks;
  train::Plan quiet = setup.plan;
  quiet.log = {};  // ReplayHook decides when to log
  train::LogHook log({no_sinks, quiet}, setup.context.groups, setup.context.device);
  TrainingState state(job, setup, log);
  train::Progress progress;
  state.note_given();
  take_up(window.from, state, progress);
  ReplayReport report{.from = window.from.step(),
                      .has_weights = window.at_step.has_value(),
                      .notes = notes_on(ledger, window.step, attempt_record(job, setup, progress, identity_of(setup)))};
  const Checkpoint& of_then = window.at_step ? *window.at_step : window.from;
  for (auto& note : notes_on_settings(of_then, job.loaded.settings())) report.notes.push_back(std::move(note));
  Curve evaluations;
  if (optim::schedules().abilities(job.spec().lr_scheduler.type).follows_evaluations)
    evaluations = read_curve(window.folder.metrics(), "eval", {watched_metric_of(job.spec(), setup.datasets)});
  ReplayHook hook(log, window, std::move(evaluations), setup, report);
  const train::Stopwatch watch;
  TrainingLoop(job.spec(), setup, {}, [] {}).run(progress, {&hook}, window.step);
  report.seconds = watch.seconds();
  if (window.at_step) {
    train::synchronise_buffers(*setup.built.model, setup.context.groups);
    Differences own;
    compare_tensors("model", window.at_step->part("model"), weight_targets(setup.built), own);
    compare_tensors("optimizer", window.at_step->part("optimizer"),
                    checkpoint::per_parameter(*setup.built.arena, setup.optimizer_stack.optimizer->state()), own);
    report_tensors(of_all_ranks(own, setup.context.groups), report);
  }
  return report;
}

}  // namespace

ReplayReport replay(const std::filesystem::path& run, int64_t step) {
  const auto ledger = monitor::read_ledger(RunFolder{run}.ledger()).lines;
  const ReplayWindow window = find_window(run, step, ledger);
  const Job job = load_job({.file = window.folder.resolved().string(), .set = {}, .output_dir = {}});
  TrainingSetup setup(job, window.from.state().value("global_batch", int64_t{0}));
  take_references(job, setup, {.file = window.folder.references(), .split = "train", .keeps = false});
  ReplayReport report = run_again(window, job, setup, ledger);
  setup.context.groups.control().barrier("end");
  report.rank = setup.context.rank();
  return report;
}

}  // namespace gputrain::app

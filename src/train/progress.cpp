#include "gputrain/train/progress.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::train {

nlohmann::json to_json(const std::optional<OrderedRate>& rate) {
  if (!rate) return nullptr;
  return {{"lr", rate->lr}, {"job_lr", rate->job_lr}};
}

std::optional<OrderedRate> ordered_rate_from_json(const nlohmann::json& json) {
  if (json.is_null()) return std::nullopt;
  return OrderedRate{.lr = json.at("lr").get<double>(), .job_lr = json.at("job_lr").get<double>()};
}

void Progress::forget_evaluations() {
  evaluates_anew = true;
  evaluations_without_gain = 0;
  gained.reset();
  gained_metric.clear();
  lr_feedback.best.reset();
  lr_feedback.bad = 0;
  best.clear();
  std::erase_if(metrics, [](const auto& metric) { return metric.first.starts_with("val/"); });
}

nlohmann::json Progress::to_json() const {
  auto best_json = nlohmann::json::object();
  for (const auto& [name, entry] : best) best_json[name] = {{"value", entry.value}, {"step", entry.step}};
  return {{"step", step},
          {"samples", usage.samples},
          {"data_fingerprint", usage.fingerprint},
          {"unreadable", usage.unreadable},
          {"unreadable_in_epoch", unreadable_in_epoch},
          {"tokens", tokens},
          {"train_seconds", train_seconds},
          {"eval_seconds", eval_seconds},
          {"save_seconds", save_seconds},
          {"attempts", attempts},
          {"metrics", metrics},
          {"best", best_json},
          {"nonfinite_steps", nonfinite_steps},
          {"skipped_in_a_row", skipped_in_a_row},
          {"rollbacks", rollbacks},
          {"gained", gained ? nlohmann::json(*gained) : nlohmann::json()},
          {"gained_metric", gained_metric},
          {"evaluations_without_gain", evaluations_without_gain},
          {"seconds_since_evaluation", seconds_since_evaluation},
          {"ordered_rate", train::to_json(ordered_rate)},
          {"average_points", average_points},
          {"lr_feedback",
           {{"factor", lr_feedback.factor},
            {"metric", lr_feedback.metric},
            {"best", lr_feedback.best ? nlohmann::json(*lr_feedback.best) : nlohmann::json()},
            {"bad", lr_feedback.bad},
            {"cooldown", lr_feedback.cooldown}}},
          {"evaluated_step", evaluated_step},
          {"evaluates_anew", evaluates_anew}};
}

Progress Progress::from_json(const nlohmann::json& json) {
  try {
    Progress progress;
    json.at("step").get_to(progress.step);
    json.at("samples").get_to(progress.usage.samples);
    json.at("data_fingerprint").get_to(progress.usage.fingerprint);
    json.at("tokens").get_to(progress.tokens);
    json.at("train_seconds").get_to(progress.train_seconds);
    json.at("attempts").get_to(progress.attempts);
    json.at("nonfinite_steps").get_to(progress.nonfinite_steps);
    json.at("evaluated_step").get_to(progress.evaluated_step);
    json.at("rollbacks").get_to(progress.rollbacks);
    json.at("eval_seconds").get_to(progress.eval_seconds);
    json.at("save_seconds").get_to(progress.save_seconds);
    if (const auto& gained = json.at("gained"); !gained.is_null()) progress.gained = gained.get<double>();
    json.at("evaluates_anew").get_to(progress.evaluates_anew);
    json.at("gained_metric").get_to(progress.gained_metric);
    progress.ordered_rate = ordered_rate_from_json(json.at("ordered_rate"));
    json.at("average_points").get_to(progress.average_points);
    const auto& feedback = json.at("lr_feedback");
    feedback.at("factor").get_to(progress.lr_feedback.factor);
    feedback.at("metric").get_to(progress.lr_feedback.metric);
    feedback.at("bad").get_to(progress.lr_feedback.bad);
    feedback.at("cooldown").get_to(progress.lr_feedback.cooldown);
    if (!feedback.at("best").is_null()) progress.lr_feedback.best = feedback.at("best").get<double>();
    json.at("seconds_since_evaluation").get_to(progress.seconds_since_evaluation);
    json.at("evaluations_without_gain").get_to(progress.evaluations_without_gain);
    json.at("unreadable").get_to(progress.usage.unreadable);
    json.at("unreadable_in_epoch").get_to(progress.unreadable_in_epoch);
    json.at("skipped_in_a_row").get_to(progress.skipped_in_a_row);
    for (const auto& [name, value] : json.at("metrics").items()) {
      progress.metrics[name] = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    }
    for (const auto& [name, entry] : json.at("best").items()) {
      progress.best[name] = {.value = entry.at("value").get<double>(), .step = entry.at("step").get<int64_t>()};
    }
    return progress;
  } catch (const nlohmann::json::exception& failure) {
    throw Error(ExitCode::checkpoint, {.what = "the checkpoint's progress cannot be read: " + reason_in(failure),
                                       .hint = "resume from another checkpoint: --set checkpoint.resume=PATH"});
  }
}

bool record_best(Progress& progress, const std::string& metric, double value) {
  if (!std::isfinite(value)) return false;  // otherwise nothing would ever be better than NaN
  const auto [entry, is_new] = progress.best.try_emplace(metric, monitor::Best{value, progress.step});
  if (is_new) return true;
  const bool better = tasks::smaller_is_better(metric) ? value < entry->second.value : value > entry->second.value;
  if (better) entry->second = {value, progress.step};
  return better;
}

double Stopwatch::seconds() const noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

double Stopwatch::lap() noexcept {
  const double elapsed = seconds();
  start_ = std::chrono::steady_clock::now();
  return elapsed;
}

}  // namespace gputrain::train

#include "gputrain/job/job_changes.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/job/run_folder.hpp"

namespace gputrain::app {
namespace {

/// Reads the settings of the checkpoint, with the order and the change classes of today's settings. A key that is newer
/// than the checkpoint gets its default.
std::vector<config::Setting> settings_from_json(const nlohmann::json& json, const Job& job) {
  const auto defaults = default_settings(job.spec());
  std::vector<config::Setting> settings = job.loaded.settings();
  for (auto& setting : settings) {
    const auto found = json.find(setting.key);
    const auto usual = defaults.find(setting.key);
    if (found != json.end()) {
      setting.value = found->get<std::string>();
    } else if (usual != defaults.end()) {
      setting.value = usual->second;
    }
  }
  return settings;
}

bool has_validation(const std::string& key) { return key.starts_with("data.val."); }

/// Returns whether only one of the checkpoint and the job has data.val, whose keys then stand in one list alone.
bool gains_or_loses_validation(const nlohmann::json& saved, const std::vector<config::Setting>& today) {
  const bool before = std::ranges::any_of(saved.items(), [](const auto& item) { return has_validation(item.key()); });
  return before != std::ranges::any_of(today, has_validation, &config::Setting::key);
}

std::string line_of(const config::Difference& change) {
  return "\n    " + change.key + ": " + change.before + " -> " + change.after;
}

}  // namespace

nlohmann::json settings_to_json(const std::vector<config::Setting>& settings) {
  auto json = nlohmann::json::object();
  for (const auto& setting : settings) json[setting.key] = setting.value;
  return json;
}

std::map<std::string, std::string> default_settings(const JobSpec& spec) {
  JobSpec plain;
  plain.data.train.format.name = spec.data.train.format.name;
  plain.lr_scheduler.type.name = spec.lr_scheduler.type.name;
  std::map<std::string, std::string> values;
  for (const auto& setting : config::settings_of(job_schema(), &plain)) values[setting.key] = setting.value;
  return values;
}

std::string ways_to_start_over(const Job& job) {
  return "--new starts over, and keeps this run as " + path_for_earlier_run(job.output_dir).string() +
         "; --output-dir OTHER trains beside it";
}

std::vector<config::Difference> changes_to_accept(const nlohmann::json& saved, const Job& job) {
  auto changes = config::differences(settings_from_json(saved, job), job.loaded.settings());
  std::erase_if(changes, [](const auto& change) { return change.change != config::Change::needs_accept; });
  if (gains_or_loses_validation(saved, job.loaded.settings())) {
    const bool is_given = job.spec().data.val.has_value();
    changes.push_back({.key = "data.val",
                       .before = is_given ? "null" : "given",
                       .after = is_given ? "given" : "null",
                       .change = config::Change::needs_accept});
  }
  return changes;
}

void check_job_changes(const nlohmann::json& saved, const Job& job, bool accept, const std::string& where) {
  std::string refused, unaccepted;
  for (const auto& change : config::differences(settings_from_json(saved, job), job.loaded.settings())) {
    if (change.change == config::Change::refused) refused += line_of(change);
  }
  if (!accept)
    for (const auto& change : changes_to_accept(saved, job)) unaccepted += line_of(change);
  if (!refused.empty()) {
    throw Error(ExitCode::usage,
                {.what = "the checkpoint belongs to another job; these settings cannot change:" + refused,
                 .where = where,
                 .hint = ways_to_start_over(job) + "; there, --set " +
                         (job.spec().model.adapter ? "model.adapter.pretrained=" + (job.output_dir / "adapter").string()
                                                   : "model.pretrained=" + where) +
                         " begins with these weights"});
  }
  if (!unaccepted.empty()) {
    throw Error(ExitCode::usage,
                {.what = "these settings changed since the checkpoint, which changes results:" + unaccepted,
                 .where = where,
                 .hint = "--accept goes on with the new values; " + ways_to_start_over(job)});
  }
}

bool evaluates_otherwise(const nlohmann::json& saved, const std::vector<config::Setting>& today) {
  if (gains_or_loses_validation(saved, today)) return true;
  return std::ranges::any_of(today, [&](const config::Setting& setting) {
    const auto before = saved.find(setting.key);
    const bool is_of_data = setting.key.starts_with("data.val.") && setting.key != "data.val.path";
    const bool is_of_evaluation = is_of_data || setting.key == "eval.max_tokens" || setting.key == "eval.hflip" ||
                                  setting.key.starts_with("data.image.eval.") ||
                                  setting.key == "data.image.interpolation";
    return is_of_evaluation && before != saved.end() && *before != setting.value;
  });
}

}  // namespace gputrain::app

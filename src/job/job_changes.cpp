#include "gputrain/job/job_changes.hpp"

#include <algorithm>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

/// The settings a checkpoint was saved with, in the order and with the classes of today's. A key that its writer did
/// not know had no effect then, like one of today's that is empty.
std::vector<config::Setting> settings_from_json(const nlohmann::json& json, const std::vector<config::Setting>& today) {
  std::vector<config::Setting> settings;
  for (const auto& setting : today) {
    const auto found = json.find(setting.key);
    const bool is_empty = setting.value == "[]" || setting.value == "null";
    if (found != json.end()) settings.push_back({setting.key, found->get<std::string>(), setting.change});
    if (found == json.end() && is_empty) settings.push_back(setting);
  }
  return settings;
}

}  // namespace

nlohmann::json settings_to_json(const std::vector<config::Setting>& settings) {
  auto json = nlohmann::json::object();
  for (const auto& setting : settings) json[setting.key] = setting.value;
  return json;
}

void check_job_changes(const nlohmann::json& saved, const std::vector<config::Setting>& today, bool accept,
                       const std::string& where) {
  std::string refused, unaccepted;
  for (const auto& change : config::differences(settings_from_json(saved, today), today)) {
    const std::string line = "\n    " + change.key + ": " + change.before + " -> " + change.after;
    if (change.change == config::Change::refused) refused += line;
    if (change.change == config::Change::needs_accept && !accept) unaccepted += line;
  }
  if (!refused.empty()) {
    throw Error(ExitCode::usage,
                {.what = "the checkpoint belongs to another job; these settings cannot change:" + refused,
                 .where = where,
                 .hint = "another --output-dir (with --set model.pretrained=" + where +
                         " it begins with these weights), or --set checkpoint.resume=never to start over"});
  }
  if (!unaccepted.empty()) {
    throw Error(ExitCode::usage,
                {.what = "these settings changed since the checkpoint, which changes results:" + unaccepted,
                 .where = where,
                 .hint = "--accept to go on with the new values"});
  }
}

bool evaluates_otherwise(const nlohmann::json& saved, const std::vector<config::Setting>& today) {
  return std::ranges::any_of(today, [&](const config::Setting& setting) {
    const auto before = saved.find(setting.key);
    const bool is_of_data = setting.key.starts_with("data.val.") && setting.key != "data.val.path";
    const bool is_of_evaluation =
        is_of_data || setting.key == "eval.max_tokens" || setting.key.starts_with("data.image.eval.");
    return is_of_evaluation && before != saved.end() && *before != setting.value;
  });
}

}  // namespace gputrain::app

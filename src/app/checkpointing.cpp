#include "checkpointing.hpp"

#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/train/evaluator.hpp"
#include "versions.hpp"
#include "weights.hpp"

namespace gputrain::app {
namespace {

nlohmann::json settings_to_json(const std::vector<config::Setting>& settings) {
  auto json = nlohmann::json::object();
  for (const auto& setting : settings) json[setting.key] = setting.value;
  return json;
}

/// The settings a checkpoint was saved with, in the order and with the classes of today's.
std::vector<config::Setting> settings_from_json(const nlohmann::json& json, const std::vector<config::Setting>& today) {
  std::vector<config::Setting> settings;
  for (const auto& setting : today) {
    const auto found = json.find(setting.key);
    if (found != json.end()) settings.push_back({setting.key, found->get<std::string>(), setting.change});
  }
  return settings;
}

/// Lets a resumed job differ only where that cannot change results, or where the user accepts that it does.
void check_changes(const std::vector<config::Difference>& differences, bool accept, const std::string& where) {
  std::string refused, unaccepted;
  for (const auto& change : differences) {
    const std::string line = "\n    " + change.key + ": " + change.before + " -> " + change.after;
    if (change.change == config::Change::refused) refused += line;
    if (change.change == config::Change::needs_accept && !accept) unaccepted += line;
  }
  if (!refused.empty()) {
    throw Error(ExitCode::usage, {.what = "the checkpoint belongs to another job; these settings cannot change:" + refused,
                                  .where = where,
                                  .hint = "another --output-dir, or --set checkpoint.resume=never to start over"});
  }
  if (!unaccepted.empty()) {
    throw Error(ExitCode::usage, {.what = "these settings changed since the checkpoint, which changes results:" + unaccepted,
                                  .where = where,
                                  .hint = "--accept to go on with the new values"});
  }
}

}  // namespace

Checkpointing::Checkpointing(Parts parts)
    : parts_(std::move(parts)), store_(parts_.folder.checkpoints(), parts_.job.spec().checkpoint.keep_last) {}

std::string Checkpointing::resume(train::Progress& progress, bool accept_changes) {
  const std::string& wish = parts_.job.spec().checkpoint.resume;
  const auto chosen = choose();
  if (!chosen) {
    if (wish == "never") return "off (checkpoint.resume: never)";
    return "none found in " + parts_.folder.checkpoints().string() + "  saves go there";
  }
  const auto today = parts_.job.loaded.settings();
  const auto differences = config::differences(settings_from_json(chosen->state().at("settings"), today), today);
  check_changes(differences, accept_changes, chosen->folder().string());
  restore(*chosen, progress);
  ++progress.attempts;
  return "step " + monitor::grouped(progress.step) + " from " + chosen->folder().string() + "  attempt " +
         std::to_string(progress.attempts);
}

std::optional<checkpoint::Checkpoint> Checkpointing::choose() const {
  const std::string& wish = parts_.job.spec().checkpoint.resume;
  if (wish == "never") return std::nullopt;
  if (wish != "auto" && wish != "must") return checkpoint::Checkpoint::open(wish);
  auto search = store_.find_newest();
  for (const auto& rejected : search.rejected) {
    log::warning("checkpoint skipped: " + rejected.folder.string() + ": " + rejected.reason);
  }
  if (!search.newest && wish == "must") {
    throw Error(ExitCode::checkpoint, {.what = "checkpoint.resume is must, but there is no good checkpoint",
                                       .where = parts_.folder.checkpoints().string(),
                                       .hint = "checkpoint.resume: auto starts from scratch when there is none"});
  }
  return std::move(search.newest);
}

void Checkpointing::restore(const checkpoint::Checkpoint& from, train::Progress& progress) {
  const at::NoGradGuard no_grad;
  try {
    const auto& state = from.state();
    progress = train::Progress::from_json(state.at("progress"));
    checkpoint::restore(from.file("model"), weights());
    checkpoint::restore(from.file("optimizer"),
                        checkpoint::per_parameter(*parts_.built.arena, parts_.updates.optimizer->state()));
    if (parts_.updates.scaler && state.contains("scaler")) {
      parts_.updates.scaler->restore({.scale = state["scaler"].at("scale").get<double>(),
                                      .growth_tracker = state["scaler"].at("growth_tracker").get<int64_t>()});
    }
    parts_.log.restore(state.at("log"));
    restore_generators(from);
  } catch (const nlohmann::json::exception& failure) {
    throw Error(ExitCode::checkpoint, {.what = std::string("the checkpoint's state cannot be read: ") + failure.what(),
                                       .where = from.folder().string(),
                                       .hint = "resume from another one: --set checkpoint.resume=PATH"});
  }
}

/// Each rank takes up its own generator; at another number of ranks there is none of its own, and each starts one that
/// depends on the step.
void Checkpointing::restore_generators(const checkpoint::Checkpoint& from) {
  const at::Tensor states = from.file("generators").tensor(parts_.place.device.is_cpu() ? "cpu" : "cuda");
  if (states.size(0) == parts_.place.groups.world_size()) {
    device::set_generator_state(parts_.place.device, states.select(0, parts_.place.rank()).clone());
  } else {
    const auto seed = static_cast<uint64_t>(parts_.job.spec().seed + from.step() + parts_.place.rank());
    device::seed_generators(parts_.place.device, seed);
  }
}

checkpoint::NamedTensors Checkpointing::weights() const { return named_weights(*parts_.built.model); }

void Checkpointing::save(const train::Progress& progress) {
  auto& groups = parts_.place.groups;
  train::synchronise_buffers(*parts_.built.model, groups);
  const at::Tensor generators =
      groups.control().all_gather(device::generator_state(parts_.place.device), "random generators");
  const nlohmann::json log = parts_.log.state();
  if (parts_.place.rank() == 0) {
    nlohmann::json state{{"version", version()},
                         {"run_id", parts_.job.run_id},
                         {"world_size", groups.world_size()},
                         {"progress", progress.to_json()},
                         {"log", log},
                         {"settings", settings_to_json(parts_.job.loaded.settings())}};
    if (parts_.updates.scaler) {
      const auto scaler = parts_.updates.scaler->state();
      state["scaler"] = {{"scale", scaler.scale}, {"growth_tracker", scaler.growth_tracker}};
    }
    store_.save(progress.step,
                {{"model", weights()},
                 {"optimizer", checkpoint::per_parameter(*parts_.built.arena, parts_.updates.optimizer->state())},
                 {"generators", {{parts_.place.device.is_cpu() ? "cpu" : "cuda", generators}}}},
                state);
  }
  groups.control().barrier("checkpoint");
}

}  // namespace gputrain::app

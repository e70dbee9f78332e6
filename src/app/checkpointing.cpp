#include "checkpointing.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/train/evaluator.hpp"
#include "record.hpp"
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

checkpoint::Checkpoint read_from(const std::filesystem::path& folder, const checkpoint::CheckpointStore::Read& read) {
  auto checkpoint = checkpoint::Checkpoint::look_into(folder);
  read(checkpoint);
  return checkpoint;
}

/// By manifest and sizes; -1: there is none, or no looking.
int64_t newest_step(const checkpoint::CheckpointStore& store) {
  try {
    for (const auto& listed : store.list()) {
      if (listed.problem.empty()) return listed.step;
    }
  } catch (const Error& error) {
    log::warning(error.what());
  }
  return -1;
}

std::string best_metric_of(const JobSpec& spec, bool has_validation, bool is_text) {
  if (!has_validation || spec.checkpoint.keep_best == 0) return "";
  const std::string name = spec.checkpoint.metric.value.value_or(is_text ? "loss" : "top1");
  const bool is_measured = name == "loss" || (name == "perplexity") == is_text;
  if (!is_measured) {
    throw Error(ExitCode::usage, {.what = "checkpoint.metric: " + name + " is not measured on this data",
                                  .hint = is_text ? "loss or perplexity" : "loss, top1 or top5"});
  }
  return "val/" + name;
}

checkpoint::Retention retention_of(const train::CheckpointSpec& spec, const train::Plan& plan, const std::string& metric) {
  return {.keep_last = spec.keep_last,
          .keep_best = metric.empty() ? 0 : spec.keep_best,
          .keep_every = spec.keep_every ? plan.steps_of(*spec.keep_every, "checkpoint.keep_every") : 0,
          .smaller_is_better = train::smaller_is_better(metric)};
}

}  // namespace

Checkpointing::Checkpointing(Parts parts)
    : parts_(std::move(parts)),
      best_metric_(best_metric_of(parts_.job.spec(), parts_.datasets.val != nullptr, parts_.datasets.is_text)),
      store_(parts_.folder.checkpoints(), retention_of(parts_.job.spec().checkpoint, parts_.plan, best_metric_)),
      writer_(store_) {
  const auto& spec = parts_.job.spec().checkpoint;
  if (spec.mirror) open_mirror(*spec.mirror, retention_of(spec, parts_.plan, best_metric_));
}

void Checkpointing::open_mirror(const std::string& path, const checkpoint::Retention& retention) {
  std::error_code unknown;
  if (std::filesystem::weakly_canonical(path, unknown) == std::filesystem::weakly_canonical(store_.folder(), unknown)) {
    throw Error(ExitCode::usage, {.what = "checkpoint.mirror is where the checkpoints themselves are",
                                  .where = path,
                                  .hint = "a folder on another disk"});
  }
  mirror_store_.emplace(path, retention);
  if (parts_.place.rank() != 0) return;
  mirror_.emplace(path, retention);
  std::filesystem::create_directories(path, unknown);
  try {
    mirror_lock_ = RunLock(path);
  } catch (const Error& error) {
    if (error.code() == ExitCode::usage) {
      throw Error(ExitCode::usage, {.what = "checkpoint.mirror is that of a run under way: " + error.parts().what,
                                    .where = path,
                                    .hint = "a folder for each run: checkpoint.mirror: /mnt/backup/${name}"});
    }
    log::warning(std::string("the mirror cannot be written now: ") + error.what());
  }
}

std::string Checkpointing::resume(train::Progress& progress, bool accept_changes) {
  const std::string& wish = parts_.job.spec().checkpoint.resume;
  const auto chosen =
      choose([&](const checkpoint::Checkpoint& from) { take_up(from, progress, accept_changes); });
  if (!chosen) {
    if (wish == "never") {
      if (mirror_) leave_newer(*mirror_store_, -1);
      return "off (checkpoint.resume: never)";
    }
    return "none found in " + parts_.folder.checkpoints().string() + "  saves go there";
  }
  tell_other_versions(*chosen);
  // Newer ones that auto passed over cannot be read at this moment; only a path is a choice of another way.
  const bool is_chosen = wish != "auto" && wish != "must";
  if (is_chosen && parts_.place.rank() == 0) leave_newer(store_, chosen->step());
  if (is_chosen && mirror_) leave_newer(*mirror_store_, chosen->step());
  is_from_mirror_ = is_mirrored(*chosen);
  if (mirror_ && !is_from_mirror_) mirror_->begin(chosen->folder());
  ++progress.attempts;
  return "step " + monitor::grouped(progress.step) + " from " + chosen->folder().string() + " in " +
         monitor::duration(restore_seconds_) + "  attempt " + std::to_string(progress.attempts) +
         (is_from_mirror_ ? "  (the mirror's: newer than any good one here)" : "");
}

void Checkpointing::take_up(const checkpoint::Checkpoint& from, train::Progress& progress, bool accept_changes) {
  const auto today = parts_.job.loaded.settings();
  const auto differences = config::differences(settings_from_json(from.state().at("settings"), today), today);
  check_changes(differences, accept_changes, from.folder().string());
  restore(from, progress);
}

std::optional<checkpoint::Checkpoint> Checkpointing::choose(const Read& read) const {
  const std::string& wish = parts_.job.spec().checkpoint.resume;
  if (wish == "never") return std::nullopt;
  if (wish != "auto" && wish != "must") return read_from(wish, read);
  auto found = newest_on_all_ranks(read);
  if (!found && wish == "must") {
    throw Error(ExitCode::checkpoint, {.what = "checkpoint.resume is must, but there is no good checkpoint",
                                       .where = parts_.folder.checkpoints().string(),
                                       .hint = "checkpoint.resume: auto starts from scratch when there is none"});
  }
  return found;
}

bool Checkpointing::is_mirrored(const checkpoint::Checkpoint& from) const {
  return mirror_store_ && from.folder() == mirror_store_->folder_of(from.step());
}

/// Rank 0 looks and every rank reads what it found: nobody goes on from somewhere else.
std::optional<checkpoint::Checkpoint> Checkpointing::newest_on_all_ranks(const Read& read) const {
  std::optional<checkpoint::Checkpoint> found;
  const at::Tensor choice = at::full({2}, -1, at::kLong);  // step, and whether it is the mirror's
  if (parts_.place.rank() == 0) {
    found = newest_good(read);
    if (found) choice[0].fill_(found->step());
    if (found) choice[1].fill_(is_mirrored(*found) ? 1 : 0);
  }
  parts_.place.groups.control().broadcast(choice, 0, "newest good checkpoint");
  const auto agreed = choice[0].item<int64_t>();
  const auto& store = choice[1].item<int64_t>() == 1 ? *mirror_store_ : store_;
  if (agreed >= 0 && !found) found = read_from(store.folder_of(agreed), read);
  return found;
}

int64_t Checkpointing::roll_back(train::Progress& progress, const std::string& reason) {
  settle();
  const train::Progress now = progress;
  const auto newest = newest_on_all_ranks([&](const checkpoint::Checkpoint& from) { restore(from, progress); });
  if (!newest) {
    throw Error(ExitCode::refused, {.what = "training diverged: " + reason + "; there is no checkpoint yet to go back to",
                                    .where = parts_.folder.checkpoints().string(),
                                    .hint = "a shorter checkpoint.interval, a longer warm-up, or train.nonfinite: skip"});
  }
  const int64_t back_to = progress.step;
  progress.step = now.step;
  progress.train_seconds = now.train_seconds;
  progress.attempts = now.attempts;
  progress.nonfinite_steps = now.nonfinite_steps;
  progress.rollbacks = now.rollbacks + 1;
  return back_to;
}

/// Who goes on from an older checkpoint leaves the newer ones: the next attempt must not take them up.
void Checkpointing::leave_newer(const checkpoint::CheckpointStore& store, int64_t step) {
  for (const auto& listed : store.list()) {
    if (listed.step <= step || !listed.problem.empty()) continue;
    const auto aside = store.set_aside(listed.folder, "left");
    log::warning(listed.folder.string() + " is of the way not taken; it is now " + aside.filename().string());
  }
}

/// The newest good one of a folder. A mirror that cannot be read has none.
checkpoint::CheckpointStore::Search Checkpointing::newest_in(const checkpoint::CheckpointStore& store, const Read& read) const {
  if (&store == &store_) return store.find_newest(read);
  try {
    return store.find_newest(read);
  } catch (const Error& error) {
    if (error.code() != ExitCode::checkpoint) throw;
    log::warning(std::string("the mirror cannot be read: ") + error.what());
    return {};
  }
}

/// Takes a damaged checkpoint out of the way and returns its new name; empty where a mirror does not allow that.
std::string Checkpointing::quarantined(const std::filesystem::path& folder) const {
  if (folder.parent_path() == store_.folder()) return store_.set_aside(folder, "bad").filename().string();
  try {
    return mirror_store_->set_aside(folder, "bad").filename().string();
  } catch (const Error&) {
    return {};
  }
}

/// Names what is not good, and takes it out of the way. Of the run's own and the mirror's, the newer is read first.
std::optional<checkpoint::Checkpoint> Checkpointing::newest_good(const Read& read) const {
  const auto& other = mirror_store_ ? *mirror_store_ : store_;
  const int64_t own_step = newest_step(store_), other_step = mirror_store_ ? newest_step(other) : -1;
  const bool is_other_first = other_step > own_step;
  auto search = newest_in(is_other_first ? other : store_, read);
  const int64_t found = search.newest ? search.newest->step() : -1;
  if (mirror_store_ && (is_other_first ? found <= own_step : found < other_step)) {
    auto second = newest_in(is_other_first ? store_ : other, read);
    const int64_t least = is_other_first ? found : found + 1;  // of equals the run's own
    const bool is_newer = second.newest && second.newest->step() >= least;
    if (!is_newer && second.newest && search.newest) read(*search.newest);  // what was read last must be what counts
    if (is_newer) search.newest = std::move(second.newest);
    search.rejected.insert(search.rejected.end(), second.rejected.begin(), second.rejected.end());
  } else if (is_other_first) {
    for (const auto& listed : store_.list()) {  // passed over without being read
      if (listed.step >= found && !listed.problem.empty()) search.rejected.push_back({listed.folder, listed.problem, false});
    }
  }
  if (!search.newest && !search.rejected.empty()) {
    throw Error(ExitCode::checkpoint,
                {.what = "none of the run's checkpoints is good; the newest: " + search.rejected.front().reason,
                 .where = store_.folder().string(),
                 .hint = "put a good copy there, or start over: --set checkpoint.resume=never keeps this run aside"});
  }
  for (const auto& rejected : search.rejected) {
    // What cannot be read now may be good later.
    const auto aside = rejected.is_damaged ? quarantined(rejected.folder) : std::string();
    log::warning("checkpoint skipped: " + rejected.reason + (aside.empty() ? "" : "; it is now " + aside));
  }
  return std::move(search.newest);
}

void Checkpointing::restore(const checkpoint::Checkpoint& from, train::Progress& progress) {
  const at::NoGradGuard no_grad;
  finish_copy();
  const train::Stopwatch watch;
  try {
    const auto& state = from.state();
    progress = train::Progress::from_json(state.at("progress"));
    checkpoint::restore(from.part("model"), weights());
    checkpoint::restore(from.part("optimizer"),
                        checkpoint::per_parameter(*parts_.built.arena, parts_.updates.optimizer->state()));
    if (parts_.updates.scaler && state.contains("scaler")) {
      parts_.updates.scaler->restore({.scale = state["scaler"].at("scale").get<double>(),
                                      .growth_tracker = state["scaler"].at("growth_tracker").get<int64_t>()});
    }
    parts_.log.restore(state.at("log"));
    restore_generators(from);
    restore_seconds_ = watch.seconds();
  } catch (const nlohmann::json::exception& failure) {
    throw Error(ExitCode::checkpoint, {.what = std::string("the checkpoint's state cannot be read: ") + failure.what(),
                                       .where = from.folder().string(),
                                       .hint = "resume from another one: --set checkpoint.resume=PATH"});
  }
}

/// Another library may round otherwise: who compares runs bit for bit must know.
void Checkpointing::tell_other_versions(const checkpoint::Checkpoint& from) const {
  if (parts_.place.rank() != 0) return;
  auto today = versions(parts_.place.device);
  std::string changed;
  for (const auto& [name, before] : from.manifest().origin.versions) {
    if (today[name] != before) changed += (changed.empty() ? "" : ", ") + name + " " + before + " -> " + today[name];
  }
  if (changed.empty()) return;
  log::warning("the checkpoint was written with other versions (" + changed + "): results may differ in their last bits");
}

/// Each rank takes up its own generator; at another number of ranks there is none of its own, and each starts one that
/// depends on the step.
void Checkpointing::restore_generators(const checkpoint::Checkpoint& from) {
  const auto& generators = from.part("generators");
  const std::string name = parts_.place.device.is_cpu() ? "cpu" : "cuda";
  const at::Tensor states = at::empty_like(generators.tensor(name));
  generators.read({{.name = name, .tensor = states, .slice = {}}});
  if (states.size(0) == parts_.place.groups.world_size()) {
    device::set_generator_state(parts_.place.device, states.select(0, parts_.place.rank()).clone());
  } else {
    const auto seed = static_cast<uint64_t>(parts_.job.spec().seed + from.step() + parts_.place.rank());
    device::seed_generators(parts_.place.device, seed);
  }
}

checkpoint::NamedTensors Checkpointing::weights() const { return named_weights(*parts_.built.model); }

checkpoint::Snapshot Checkpointing::snapshot(const train::Progress& progress, const at::Tensor& generators) const {
  nlohmann::json state{{"version", version()},
                       {"run_id", parts_.job.run_id},
                       {"world_size", parts_.place.groups.world_size()},
                       {"progress", progress.to_json()},
                       {"log", parts_.log.state()},
                       {"settings", settings_to_json(parts_.job.loaded.settings())}};
  if (parts_.updates.scaler) {
    const auto scaler = parts_.updates.scaler->state();
    state["scaler"] = {{"scale", scaler.scale}, {"growth_tracker", scaler.growth_tracker}};
  }
  std::optional<checkpoint::Score> score;
  const auto measured = progress.metrics.find(best_metric_);
  if (progress.evaluated_step == progress.step && measured != progress.metrics.end() &&
      std::isfinite(measured->second)) {
    score = {.metric = best_metric_, .value = measured->second};
  }
  return {.step = progress.step,
          .files = {{"model", weights()},
                    {"optimizer", checkpoint::per_parameter(*parts_.built.arena, parts_.updates.optimizer->state())},
                    {"generators", {{parts_.place.device.is_cpu() ? "cpu" : "cuda", generators}}}},
          .state = state.dump(2) + "\n",
          .score = score,
          .origin = {.spec_hash = parts_.job.spec_hash,
                     .world_size = parts_.place.groups.world_size(),
                     .versions = versions(parts_.place.device)},
          .synced_before = {parts_.folder.metrics()}};
}

/// Buffers are not among them: a forward pass changes running statistics.
std::vector<at::Tensor> Checkpointing::what_only_updates_change() const {
  std::vector<at::Tensor> tensors{parts_.built.arena->values()};
  for (const auto& [name, flat] : parts_.updates.optimizer->state().flat) tensors.push_back(flat);
  return tensors;
}

void Checkpointing::save(const train::Progress& progress, train::SaveMode mode) {
  const bool durable = mode == train::SaveMode::durable;
  auto& groups = parts_.place.groups;
  train::synchronise_buffers(*parts_.built.model, groups);
  const at::Tensor generators =
      groups.control().all_gather(device::generator_state(parts_.place.device), "random generators");
  const checkpoint::Snapshot live = snapshot(progress, generators);
  if (parts_.place.rank() == 0) {
    usage_[progress.step] = progress.usage;
    if (durable) writer_.wait();
    note_results();
    if (durable) {
      if (mirror_) mirror_->hold(true);  // what is saved here comes first
      note(writer_.save(live));
      if (mirror_) mirror_->hold(false);
    } else {
      if (mode == train::SaveMode::announced) announced_step_ = progress.step;
      writer_.begin(live, what_only_updates_change());
      note_results();  // of the save that this one has waited for
      parts_.pace.note_begun();
    }
  }
  if (fails_anywhere(durable ? failures_ > 0 : failures_ >= parts_.job.spec().checkpoint.max_save_failures)) {
    throw Error(ExitCode::checkpoint,
                {.what = "cannot save: " + (last_failure_.empty() ? "rank 0 has the reason" : last_failure_),
                 .hint = "make room or mend the disk, then start again: training goes on from the last good checkpoint"});
  }
}

bool Checkpointing::settle() {
  if (parts_.place.rank() == 0) {
    writer_.wait();
    note_results();
  }
  return !fails_anywhere(failures_ > 0);
}

void Checkpointing::note_results() {
  for (const auto& result : writer_.take_results()) note(result);
  if (!mirror_) return;
  for (const auto& result : mirror_->take_results()) note(result);
}

/// Told once for each cause: a mirror that is gone for the night is one warning.
void Checkpointing::note(const checkpoint::Mirror::Result& result) {
  if (!result.failure) {
    mirror_failure_.clear();
    parts_.ledger.append("mirror", {{"step", result.step}, {"bytes", result.bytes}, {"seconds", result.seconds}});
    return;
  }
  parts_.ledger.append("mirror_failed", {{"step", result.step}, {"reason", result.failure->what()}});
  if (std::exchange(mirror_failure_, result.failure->parts().what) == mirror_failure_) return;
  log::warning("no second copy of step " + std::to_string(result.step) + ": " + result.failure->what());
}

void Checkpointing::finish_mirror(const std::function<double()>& seconds_left) {
  constexpr double kLookEverySeconds = 0.1;
  if (!mirror_) return;
  bool is_done = mirror_->wait(0);
  if (!is_done) parts_.console.line("mirror", "copying the last checkpoint to " + mirror_store_->folder().string());
  while (!is_done && seconds_left() > 0) is_done = mirror_->wait(std::min(kLookEverySeconds, seconds_left()));
  note_results();
  if (is_done) return;
  log::warning("the mirror does not have the last checkpoint yet; the next attempt copies it first");
}

void Checkpointing::note(const checkpoint::BackgroundWriter::Result& result) {
  save_seconds_ = result.seconds;
  usage_.erase(usage_.begin(), usage_.find(result.step));  // the step itself may be saved once more
  if (!result.failure) {
    failures_ = 0;
    if (mirror_) mirror_->begin(store_.folder_of(result.step));
    parts_.pace.note_written(result.stall_seconds, result.seconds);
    parts_.ledger.append("checkpoint", {{"step", result.step}, {"data", to_json(usage_.at(result.step))}, {"bytes", result.bytes},
                                        {"seconds", result.seconds}, {"verify_seconds", result.verify_seconds},
                                        {"stall_seconds", result.stall_seconds}});
    if (result.step == announced_step_) {
      parts_.console.line("save", "step " + monitor::grouped(result.step) + " on request  " +
                                      monitor::bytes(static_cast<double>(result.bytes)) + " in " +
                                      monitor::duration(result.seconds) + "  " + store_.folder_of(result.step).string());
    }
    return;
  }
  ++failures_;
  parts_.pace.note_failed();
  last_failure_ = result.failure->what();
  parts_.ledger.append("save_failed", {{"step", result.step}, {"reason", last_failure_}});
  log::warning("no checkpoint of step " + std::to_string(result.step) + " (failure " + std::to_string(failures_) + " of " +
               std::to_string(parts_.job.spec().checkpoint.max_save_failures) + " in a row): " + last_failure_);
}

bool Checkpointing::fails_anywhere(bool failed) {
  at::Tensor count = at::full({}, failed ? 1 : 0, at::kLong);
  parts_.place.groups.control().all_reduce_sum(count, "checkpoint").wait();
  return count.item<int64_t>() > 0;
}

}  // namespace gputrain::app

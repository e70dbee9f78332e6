#include "gputrain/setup/training_state.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/job/job_changes.hpp"
#include "gputrain/setup/versions.hpp"
#include "gputrain/setup/weights.hpp"
#include "gputrain/train/evaluator.hpp"

namespace gputrain::app {
namespace {

std::set<std::string> frozen_names(const checkpoint::Checkpoint& checkpoint) {
  std::set<std::string> names;
  const auto& frozen = checkpoint.manifest().frozen;
  if (!frozen) return names;
  for (const auto& [name, tensor] : frozen->tensors) names.insert(name);
  return names;
}

std::string source_now(const JobSpec& spec) {
  return spec.model.pretrained ? "model.pretrained " + *spec.model.pretrained : "seed " + std::to_string(spec.seed);
}

/// Returns the digest of the validation data, on rank 0.
std::string val_content_here(const TrainingSetup& setup) {
  const auto& val = setup.datasets.val;
  return val && setup.context.rank() == 0 ? data::content_digits(*val) : "";
}

/// Runs code that reads the checkpoint's state. Throws Error(checkpoint) if its format is wrong.
void reading_state_of(const checkpoint::Checkpoint& from, const std::function<void()>& read) {
  try {
    read();
  } catch (const nlohmann::json::exception& failure) {
    throw Error(ExitCode::checkpoint, {.what = "the checkpoint's state cannot be read: " + reason_in(failure),
                                       .where = from.folder().string(),
                                       .hint = "resume from another checkpoint: --set checkpoint.resume=PATH"});
  }
}

/// Returns the key of the average that the job keeps; empty: none.
std::string average_of(const JobSpec& spec, const OptimizerStack& optimizer_stack) {
  if (optimizer_stack.average == nullptr) return "";
  return spec.train.ema ? "train.ema" : spec.train.swa ? "train.swa" : "optimizer.type " + spec.optimizer.type.name;
}

/// Refuses another average: a run keeps one kind from its start, or none, and cannot begin with one that is missing.
void check_average(const checkpoint::Checkpoint& from, const std::string& now) {
  const std::string then = from.state().value("average", "");
  if (then == now) return;
  const auto text = [](const std::string& key) { return key.empty() ? "no average of the weights" : key; };
  throw Error(ExitCode::usage, {.what = "the checkpoint was made with " + text(then) + ", and the job has " + text(now),
                                .where = from.folder().string(),
                                .hint = "leave that as it was, or begin another run: another --output-dir, with "
                                        "model.pretrained to start from these weights"});
}

/// Returns the checkpoint's position in the data.
data::Position position_at(const checkpoint::Checkpoint& from, const data::OrderFacts& now) {
  data::OrderFacts then = now;
  const auto& position = from.state().at("position");
  position.at("epoch").get_to(then.from.epoch);
  position.at("samples").get_to(then.from.samples);
  then.from.samples = std::min(then.from.samples, now.samples);  // limit for data that has shrunk since
  if (!data::is_reachable(then)) throw checkpoint::Damage("its state names a place outside the data", from.folder());
  return data::position_after(then, 0);
}

}  // namespace

TrainingState::TrainingState(const Job& job, TrainingSetup& setup, train::Hook& log)
    : job_(job),
      setup_(setup),
      log_(log),
      val_content_(setup.context.groups.from_rank_zero(val_content_here(setup), "content of data.val")),
      frozen_source_(source_now(job.spec())) {}

bool TrainingState::has_other_validation_data(const checkpoint::Checkpoint& from) const {
  const auto& val = setup_.datasets.val;
  if (!val) return false;
  const std::string content = from.state().value("val_content", "");  // empty if the run had no data.val
  return from.state().value("val_samples", val->size()) != val->size() ||
         (!content.empty() && !val_content_.empty() && content != val_content_);
}

namespace {

/// Returns the part that rank `rank` of `ranks` writes.
checkpoint::Shard shard_of(std::string part, const BuiltModel& built, int rank, int ranks,
                           std::vector<checkpoint::Part::Target> targets) {
  checkpoint::Shard shard{.part = std::move(part), .tensors = {}, .slices = {}};
  if (ranks > 1) shard.rank = rank, shard.ranks = ranks;
  const bool has_first_part = rank % built.tensor_ranks() == 0;  // writes what the ranks of its layers all have
  for (auto& owned : targets) {
    if (!has_first_part && !(owned.slice && owned.slice->cut)) continue;
    if (owned.slice) shard.slices[owned.name] = *owned.slice;
    shard.tensors.emplace_back(owned.name, owned.tensor);
  }
  return shard;
}

}  // namespace

checkpoint::Shard optimizer_shard(const BuiltModel& built, optim::Optimizer& optimizer, int rank) {
  auto state = optimizer.state();
  if (rank != 0) state.scalars.clear();
  return shard_of("optimizer", built, rank, built.ranks_of_state(), checkpoint::per_parameter(*built.arena, state));
}

checkpoint::Shard model_shard(const BuiltModel& built, int rank) {
  auto shard = shard_of("model", built, rank, built.ranks_of_weights(), checkpoint::values_per_parameter(*built.arena));
  if (rank == 0) {
    for (auto& [name, buffer] : train::buffers_of(*built.model)) shard.tensors.emplace_back(name, buffer);
  }
  return shard;
}

std::vector<checkpoint::Part::Target> weight_targets(const BuiltModel& built) {
  if (!built.has_parts()) return checkpoint::whole(named_weights(*built.model));
  auto targets = checkpoint::values_per_parameter(*built.arena);
  for (auto& [name, buffer] : train::buffers_of(*built.model))
    targets.push_back({.name = name, .tensor = buffer, .slice = std::nullopt});
  for (auto& frozen : checkpoint::per_frozen_parameter(*built.arena)) targets.push_back(std::move(frozen));
  if (!built.sharded) {
    for (auto& [name, frozen] : frozen_weights(*built.model))
      targets.push_back({.name = name, .tensor = frozen, .slice = std::nullopt});
  }
  return targets;
}

/// Compares the global batch; check_job_changes() compares only settings. It may differ with equal settings, for
/// example if this run was planned from the newest checkpoint and that one is damaged.
void TrainingState::check_global_batch(const checkpoint::Checkpoint& from, bool accept_changes) const {
  const int64_t now = setup_.plan.batch.global_batch, before = from.state().value("global_batch", now);
  if (before == now) return;
  const std::string what =
      "the global batch was " + counted(before, "sample") + " at the checkpoint and is " + std::to_string(now) + " now";
  const std::string effect =
      "every epoch still uses each sample once, in another number of steps; train.max_steps and intervals in steps "
      "count steps as before";
  if (!accept_changes) {
    throw Error(ExitCode::usage, {.what = what,
                                  .where = from.folder().string(),
                                  .hint = "--accept to go on: " + effect + ". Or " + ways_to_start_over(job_)});
  }
  log::warning(what + ": " + effect);
}

void TrainingState::take_up(const checkpoint::Checkpoint& from, train::Progress& progress, bool accept_changes) {
  reading_state_of(from, [&] {
    check_job_changes(from.state().at("settings"), job_, accept_changes, from.folder().string());
    check_average(from, average_of(job_.spec(), setup_.optimizer_stack));
    check_global_batch(from, accept_changes);
  });
  restore(from, progress);
  reading_state_of(from, [&] {
    train::PlanStart start = start_at(from);
    start.log_steps = json_value(from.state(), "log_steps", int64_t{0});
    go_on_from(start, job_, setup_);
  });
}

train::PlanStart TrainingState::start_at(const checkpoint::Checkpoint& from) const {
  data::OrderFacts order = order_facts(job_.spec(), setup_);
  order.first_step = 0;
  order.from = {};
  const nlohmann::json& state = from.state();
  const data::Position position = position_at(from, order);
  const auto first = state.at("first_global_batch").get<int64_t>();
  const auto leads_here = [&](const train::PlanStart& start) {
    order.first_step = start.step;
    order.from = start.position;
    return data::is_reachable(order) && start.step <= from.step() &&
           data::position_after(order, from.step()) == position;
  };
  train::PlanStart start{.first_global_batch = first};
  if (leads_here(start)) return start;
  if (const auto then = state.find("start"); then != state.end()) {
    start = {.step = then->at("step").get<int64_t>(),
             .position = {.epoch = then->at("epoch").get<int64_t>(), .samples = then->at("samples").get<int64_t>()},
             .epochs = then->at("epochs").get<double>(),
             .first_global_batch = first};
    if (leads_here(start)) return start;
  }
  start = {.step = from.step(),
           .position = position,
           .epochs = state.at("epochs").get<double>(),
           .first_global_batch = first};
  if (std::floor(start.epochs) != static_cast<double>(position.epoch)) {  // other data
    start.epochs = static_cast<double>(position.epoch) +
                   static_cast<double>(position.samples) / static_cast<double>(order.samples);
  }
  return start;
}

void TrainingState::restore(const checkpoint::Checkpoint& from, train::Progress& progress) {
  const at::NoGradGuard no_grad;
  reading_state_of(from, [&] {
    const auto& state = from.state();
    progress = train::Progress::from_json(state.at("progress"));
    if (!optim::schedules().abilities(job_.spec().lr_scheduler.type).follows_evaluations)
      progress.lr_feedback = {};  // it is that of another curve
    if (progress.step != from.step())
      throw checkpoint::Damage("its state is that of step " + std::to_string(progress.step), from.folder());
    note_source(from);
    restore_weights(from);
    restore_optimizer(from);
    setup_.gradient_sync.restore(from, setup_.context.groups);
    if (setup_.optimizer_stack.scaler && state.contains("scaler")) {
      setup_.optimizer_stack.scaler->restore({.scale = state["scaler"].at("scale").get<double>(),
                                              .growth_tracker = state["scaler"].at("growth_tracker").get<int64_t>()});
    }
    log_.restore(state.at("log"));
    restore_generators(from);
  });
}

void TrainingState::note_given() {
  if (!setup_.built.sharded || setup_.built.arena->frozen().empty()) return;
  const auto note = [&](const std::string& name, const at::Tensor& values) {
    if (setup_.context.rank() == 0) given_[name] = checkpoint::note_of(values);
  };
  each_weight(setup_.built, note, parallel::Values::frozen);
}

/// Notes the source of frozen values. A checkpoint's own ones stay, whatever the job's source gives now. Compares the
/// two, and reports a difference: an error for an adapter, which is of no use with other weights than its own.
void TrainingState::note_source(const checkpoint::Checkpoint& from) {
  const auto& saved = from.manifest().frozen;
  const auto frozen = frozen_weights(*setup_.built.model);
  const std::string source = source_now(job_.spec());
  frozen_source_ = saved ? saved->source : source;
  frozen_.reset();
  const bool has_trained =
      std::ranges::any_of(frozen, [&](const auto& named) { return !saved || !saved->tensors.contains(named.first); });
  if (has_trained) frozen_source_ = "training until step " + std::to_string(from.step()) + ", " + source;
  const bool is_adapter = setup_.built.adapter != nullptr;
  if (setup_.context.rank() != 0 || !saved || (saved->source != source && !is_adapter)) return;
  auto given = given_;
  if (!setup_.built.sharded) {
    for (const auto& [name, tensor] : frozen) given[name] = checkpoint::note_of(tensor);
  }
  int64_t others = 0;
  for (const auto& [name, now] : given) {
    const auto then = saved->tensors.find(name);
    others += then != saved->tensors.end() && then->second.dtype == now.dtype && then->second != now;
  }
  if (others == 0) return;
  if (is_adapter) {
    throw Error(ExitCode::usage,
                {.what = "model.pretrained holds other values than those that the adapter is trained on, in " +
                         counted(others, "tensor"),
                 .where = *job_.spec().model.pretrained,
                 .hint = "put the weights back that the run began with, or start another run: another --output-dir"});
  }
  log::warning(source + " gives other values than before for " + counted(others, "frozen tensor") +
               ": the run keeps those that it began with, which lie beside its checkpoints");
}

/// Restores weights. Casts those whose dtype differs because they were frozen then and are trained now, or the reverse.
void TrainingState::restore_weights(const checkpoint::Checkpoint& from) {
  const checkpoint::Part& part = from.part("model");
  std::set<std::string> may_differ = frozen_names(from);
  for (const auto& [name, tensor] : setup_.built.arena->frozen()) may_differ.insert(name);
  auto targets = weight_targets(setup_.built);
  std::vector<std::pair<at::Tensor, at::Tensor>> to_cast;  // pairs of to, from
  for (auto& target : targets) {
    if (!may_differ.contains(target.name) || !part.contains(target.name)) continue;
    const at::ScalarType type = part.type(target.name);
    if (type == target.tensor.scalar_type() || !at::isFloatingType(type)) continue;
    const at::Tensor live = target.tensor;
    target.tensor = at::empty(live.sizes(), at::TensorOptions().dtype(type));
    to_cast.emplace_back(live, target.tensor);
  }
  part.read(targets, named_weights(*setup_.built.model).size());
  for (const auto& [to, read] : to_cast) to.copy_(read);
  if (setup_.built.sharded) setup_.built.sharded->release_all();
}

namespace {

/// Counts the tensors of single weights in a checkpoint, for all ranks: a weight need not have every kind.
size_t saved_of_weights(const checkpoint::Part& part, const optim::Optimizer::State& state) {
  size_t count = 0;
  for (const std::string& name : part.names()) {
    count += std::ranges::any_of(state.of_weights, [&](const auto& one) { return name.starts_with(one.kind + "."); });
  }
  return count;
}

}  // namespace

/// Restores what each rank owns, whoever wrote it. Weights that were frozen at the checkpoint start with fresh state,
/// and the state of weights that have been frozen since is left out.
void TrainingState::restore_optimizer(const checkpoint::Checkpoint& from) {
  const checkpoint::Part& part = from.part("optimizer");
  const auto& arena = *setup_.built.arena;
  optim::Optimizer& optimizer = *setup_.optimizer_stack.optimizer;
  const auto frozen_then = frozen_names(from);
  const auto is_count = [](const std::string& name) { return name.starts_with(optim::Optimizer::kSincePrefix); };
  std::map<std::string, double> since;
  for (const std::string& name : part.names()) {
    if (!is_count(name)) continue;
    since[name.substr(std::string_view(optim::Optimizer::kSincePrefix).size())] = part.tensor(name).item<double>();
  }
  const size_t counts = since.size();
  optimizer.count_since(since);  // a rule may have more state for weights that were trained late
  auto state = optimizer.state();
  std::erase_if(state.scalars, [&](const auto& named) { return is_count(named.first); });
  std::set<std::string> fresh;  // names of tensors of the state
  const auto& units = setup_.built.units;
  size_t trained_then = units.empty() ? arena.segments().size() : units.size();
  for (const auto& segment : arena.segments()) {
    if (!frozen_then.contains(segment.name)) continue;
    --trained_then;
    for (const auto& [kind, flat] : state.flat) fresh.insert(kind + "." + segment.name);
    for (const auto& [kind, tensors] : state.of_weights) fresh.insert(kind + "." + segment.name);
  }
  for (const auto& [name, tensor] : arena.frozen()) {
    trained_then += !frozen_then.contains(name);
    since.erase(name);
  }
  auto targets = checkpoint::per_parameter(arena, state);
  std::erase_if(targets, [&](const checkpoint::Part::Target& target) {
    if (!fresh.contains(target.name)) return false;
    target.tensor.zero_();
    return true;
  });
  part.read(targets, state.scalars.size() + counts + state.flat.size() * trained_then + saved_of_weights(part, state));
  for (const auto& segment : arena.segments()) {
    if (!frozen_then.contains(segment.name)) continue;
    since[segment.name] = optimizer.updates();
    optimizer.begin_anew(segment.name);
  }
  optimizer.count_since(since);
}

/// Restores each rank's own generator. If the number of ranks or the kind of device changed, it has none in the
/// checkpoint and starts one seeded with the step.
void TrainingState::restore_generators(const checkpoint::Checkpoint& from) {
  const auto& generators = from.part("generators");
  const auto names = generators.names();
  const std::string name = setup_.context.device.is_cpu() ? "cpu" : "cuda";
  at::Tensor states;
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    states = at::empty_like(generators.tensor(name));
    generators.read({{.name = name, .tensor = states, .slice = {}}});
  }
  if (states.defined() && states.size(0) == setup_.context.groups.world_size()) {
    device::set_generator_state(setup_.context.device, states.select(0, setup_.context.rank()).clone());
  } else {
    const auto seed = static_cast<uint64_t>(job_.spec().seed + from.step() + setup_.context.rank());
    device::seed_generators(setup_.context.device, seed);
  }
}

/// Takes frozen weights on rank 0, for the checkpoints of this attempt. Every rank must call.
void TrainingState::take_frozen() {
  auto& built = setup_.built;
  const bool is_rank_zero = setup_.context.rank() == 0;
  if (built.arena->frozen().empty()) return;
  if (!built.sharded) {
    if (is_rank_zero && !frozen_)
      frozen_ = std::make_shared<checkpoint::FrozenWeights>(frozen_weights(*built.model), frozen_source_);
    return;
  }
  const bool lacks = is_rank_zero && (!frozen_ || !frozen_->is_at_hand());
  if (setup_.context.groups.from_rank_zero(static_cast<int64_t>(lacks), "whether frozen weights are missing") == 0)
    return;
  auto weights = gathered_weights(built, setup_.context, parallel::Values::frozen);
  if (is_rank_zero)
    frozen_ = std::make_shared<checkpoint::FrozenWeights>(std::move(weights), frozen_source_,
                                                          checkpoint::FrozenWeights::Kept::until_written);
}

checkpoint::Snapshot TrainingState::gather(const train::Progress& progress, const std::string& best_metric) {
  auto& groups = setup_.context.groups;
  train::synchronise_buffers(*setup_.built.model, groups);
  const at::Tensor generators =
      groups.control().all_gather(device::generator_state(setup_.context.device), "random generators");
  const data::Position position = data::position_after(order_facts(job_.spec(), setup_), progress.step);
  const train::PlanStart& start = setup_.plan.start;
  const int64_t first = start.first_global_batch;
  const train::Cadence& save = setup_.plan.save;
  nlohmann::json state{{"version", version()},
                       {"run_id", job_.run_id},
                       {"world_size", groups.world_size()},
                       {"global_batch", setup_.plan.batch.global_batch},
                       {"first_global_batch", first > 0 ? first : setup_.plan.batch.global_batch},
                       {"position", {{"epoch", position.epoch}, {"samples", position.samples}}},
                       {"epochs", setup_.plan.epochs_in(progress.step)},
                       {"progress", progress.to_json()},
                       {"log", log_.state()},
                       {"settings", settings_to_json(job_.loaded.settings())}};
  if (const std::string average = average_of(job_.spec(), setup_.optimizer_stack); !average.empty())
    state["average"] = average;
  if (job_.spec().log.interval.is_auto()) state["log_steps"] = setup_.plan.log.steps;
  if (start.step > 0) {
    state["start"] = {{"step", start.step},
                      {"epoch", start.position.epoch},
                      {"samples", start.position.samples},
                      {"epochs", start.epochs}};
  }
  if (setup_.optimizer_stack.scaler) {
    const auto scaler = setup_.optimizer_stack.scaler->state();
    state["scaler"] = {{"scale", scaler.scale}, {"growth_tracker", scaler.growth_tracker}};
  }
  std::optional<checkpoint::Score> score;
  const auto measured = progress.metrics.find(best_metric);
  if (progress.evaluated_step == progress.step && measured != progress.metrics.end() &&
      std::isfinite(measured->second)) {
    score = {.metric = best_metric, .value = measured->second};
  }
  if (setup_.datasets.val) state["val_samples"] = setup_.datasets.val->size();
  if (!val_content_.empty()) state["val_content"] = val_content_;
  setup_.gradient_sync.note(state);
  std::vector<checkpoint::Shard> shards;
  const BuiltModel& built = setup_.built;
  if (const int writer = built.writer_of_state(groups.mesh(), groups.rank()); writer >= 0)
    shards.push_back(optimizer_shard(built, *setup_.optimizer_stack.optimizer, writer));
  take_frozen();
  std::map<std::string, checkpoint::NamedTensors> files{
      {"generators", {{setup_.context.device.is_cpu() ? "cpu" : "cuda", generators}}}};
  if (built.has_parts()) {
    if (const int writer = built.writer_of_weights(groups.mesh(), groups.rank()); writer >= 0)
      shards.push_back(model_shard(built, writer));
  } else {
    files["model"] = trained_weights(*setup_.built.model);
  }
  return {.step = progress.step,
          .files = std::move(files),
          .shards = std::move(shards),
          .frozen = frozen_,
          .state = state.dump(2) + "\n",
          .score = score,
          .for_good = save.also_steps > 0 ? std::optional(save.also_at_step(progress.step)) : std::nullopt,
          .origin = {.spec_hash = job_.spec_hash,
                     .world_size = groups.world_size(),
                     .versions = versions(setup_.context.device)},
          .rank = setup_.context.rank(),
          .awaited = files_of_others(),
          // Time shorter than that of the other ranks, which wait for rank 0 in a collective.
          .patience_seconds = job_.spec().parallel.timeout.seconds / 2};
}

std::vector<std::string> TrainingState::files_of_others() const {
  std::vector<std::string> names;
  const auto add = [&](const char* part, int64_t ranks) {
    for (int64_t rank = 1; rank < ranks; ++rank) names.push_back(checkpoint::file_name(part, rank, ranks));
  };
  add("optimizer", setup_.built.ranks_of_state());
  if (setup_.built.has_parts()) add("model", setup_.built.ranks_of_weights());
  return names;
}

/// Leaves out buffers: a forward pass changes running statistics.
std::vector<at::Tensor> TrainingState::what_only_updates_change() const {
  std::vector<at::Tensor> tensors{setup_.built.arena->kept_values()};
  for (const at::Tensor& tensor : setup_.optimizer_stack.optimizer->state().large()) tensors.push_back(tensor);
  return tensors;
}

}  // namespace gputrain::app

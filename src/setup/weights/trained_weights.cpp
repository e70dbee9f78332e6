#include "gputrain/setup/trained_weights.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/models/packed_layers.hpp"
#include "gputrain/setup/training_state.hpp"
#include "gputrain/setup/weights.hpp"
#include "gputrain/train/evaluator.hpp"

namespace gputrain::app {

std::filesystem::path weights_of_run(const Job& job, const RunFolder& run) {
  const auto written = job.spec().model.adapter ? run.adapter() : run.weights();
  if (exists(written)) return written;
  const auto branch = checkpoint::branch_folder(run.checkpoints(), branch_of(run, {}).number);
  if (!exists(branch)) return {};
  const auto newest = checkpoint::newest_listed({branch});
  return newest ? newest->folder : std::filesystem::path();
}

RunFolder run_at(const std::filesystem::path& folder) {
  if (!exists(folder / checkpoint::kManifestName)) return {folder};
  constexpr int kMostLevels = 3;  // such as ckpt/branch-2/step-00000100
  // Path as it is written first: ckpt/ may be a link to another disk. Then the real one: `best` is a link, and `.` has
  // no folder above.
  for (std::filesystem::path above :
       {std::filesystem::absolute(folder / "").lexically_normal().parent_path(), std::filesystem::canonical(folder)}) {
    for (int level = 0; level < kMostLevels; ++level) {
      above = above.parent_path();
      if (exists(RunFolder{above}.resolved())) return {above};
    }
  }
  return {folder};
}

std::filesystem::path weights_at(const std::filesystem::path& folder, const Job& job, const RunFolder& run) {
  if (run.path != folder) return folder;
  const auto weights = weights_of_run(job, run);
  if (weights.empty())
    throw Error(ExitCode::data, {.what = "there are no trained weights",
                                 .where = folder.string(),
                                 .hint = "a run writes them at its end, and in every checkpoint"});
  return weights;
}

TrainedRun trained_run(const std::filesystem::path& folder, const std::vector<std::string>& set) {
  const RunFolder run = run_at(folder);
  if (!exists(run.resolved()))
    throw Error(ExitCode::usage, {.what = "not a run folder: it has no job.resolved.yaml", .where = folder.string()});
  TrainedRun trained{
      .job = load_job_of_weights({.file = run.resolved().string(), .set = set, .output_dir = run.path.string()}),
      .weights = {}};
  trained.weights = weights_at(folder, trained.job, run);
  return trained;
}

namespace {

/// Returns the checkpoint that has the weights: its folder, or that of a file in it. Empty: none has them.
std::filesystem::path checkpoint_of(const std::filesystem::path& weights) {
  for (const auto& folder : {weights, weights.parent_path()})
    if (exists(folder / checkpoint::kManifestName)) return folder;
  return {};
}

/// Loads the average beside the weights in the optimizer's state: a run that averages its weights has evaluated it.
void load_average(const std::filesystem::path& weights, BuiltModel& built) {
  const auto folder = checkpoint_of(weights);
  if (folder.empty()) return;
  const auto saved = checkpoint::Checkpoint::look_into(folder);
  if (saved.state().value("average", "").empty()) return;
  const checkpoint::Part& state = saved.part("optimizer");
  auto targets = weight_targets(built);
  std::set<std::string> buffers;
  for (const auto& [name, buffer] : train::buffers_of(*built.model)) buffers.insert(name);
  std::set<std::string> offsets;
  for (auto& target : targets) {
    const std::string offset = std::string(optim::Optimizer::kAverageOffset) + "." + target.name;
    if (state.contains(offset)) {
      offsets.insert(target.name = offset);
      continue;
    }
    target.name = buffers.contains(target.name) ? optim::WeightAverage::buffer_name(target.name)
                                                : std::string(optim::WeightAverage::kName) + "." + target.name;
  }
  std::erase_if(targets, [&](const auto& target) { return !state.contains(target.name); });
  std::vector<std::pair<at::Tensor, at::Tensor>> to_cast, to_add;  // pairs of to, from
  for (auto& target : targets) {
    const bool is_offset = offsets.contains(target.name);
    if (state.type(target.name) == target.tensor.scalar_type() && !is_offset) continue;
    const at::Tensor live = target.tensor;
    target.tensor = at::empty(live.sizes(), at::TensorOptions().dtype(state.type(target.name)));
    (is_offset ? to_add : to_cast).emplace_back(live, target.tensor);
  }
  const at::NoGradGuard no_grad;
  state.read(targets);
  for (const auto& [to, read] : to_cast) to.copy_(read);
  for (const auto& [to, read] : to_add) to.add_(read.to(to.options()));
}

/// Returns the frozen weights that a checkpoint names; none if it names none, or is damaged.
std::optional<checkpoint::Frozen> frozen_of(const std::filesystem::path& folder) {
  try {
    return checkpoint::Checkpoint::look_into(folder).manifest().frozen;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Returns whether a checkpoint has the frozen weights in another form than the model, packed or not.
bool has_other_form(const std::filesystem::path& weights, const BuiltModel& built) {
  const auto folder = checkpoint_of(weights);
  const auto written = built.adapter && !folder.empty() ? frozen_of(folder) : std::nullopt;
  if (!written) return false;
  const checkpoint::NamedTensors frozen = frozen_weights(*built.model);
  const auto is_written = [&](const auto& named) { return written->tensors.contains(named.first); };
  return written->tensors.size() != frozen.size() || !std::ranges::all_of(frozen, is_written);
}

/// Loads what was trained from a checkpoint: the frozen weights are those of the base.
void load_trained_alone(const std::filesystem::path& weights, BuiltModel& built) {
  const checkpoint::NamedTensors trained = trained_weights(*built.model);
  const std::map<std::string, at::Tensor> targets(trained.begin(), trained.end());
  models::TensorSource source = weight_source(weights, *built.model);
  std::erase_if(source.names, [&](const std::string& name) { return !targets.contains(name); });
  models::load_tensors(targets, source);
}

}  // namespace

void load_trained(const std::filesystem::path& weights, BuiltModel& built) {
  const auto adapter = built.adapter ? adapter_folder_at(weights) : std::filesystem::path();
  const bool is_alone = adapter.empty() && has_other_form(weights, built);
  const auto load = [&] {
    if (is_alone) {
      load_trained_alone(weights, built);
      if (!built.sharded) check_base(weights, built);
    } else if (adapter.empty()) {
      load_weights(built, weights);
    } else {
      load_adapter(built, adapter);
      if (!built.sharded) check_base(adapter, built);
    }
  };
  if (built.sharded) {
    built.sharded->fill(load, adapter.empty() && !is_alone ? parallel::Values::all : parallel::Values::trained);
  } else {
    load();
  }
  load_average(weights, built);
}

namespace {

/// Counts the frozen tensors that have other values than a run has written. Those that the run has packed are packed
/// for that, if the model's are not.
int64_t count_others(const checkpoint::Frozen& written, const RunFolder& run, const BuiltModel& built) {
  int64_t others = 0;
  const auto compare = [&](const std::string& name, const at::Tensor& tensor) {
    const auto then = written.tensors.find(name);
    others += then != written.tensors.end() && checkpoint::has_other_values(tensor, then->second);
  };
  for (const auto& [name, tensor] : frozen_weights(*built.model)) compare(name, tensor);
  if (built.pretrained.empty() || !models::weights_of_packed(*built.model).empty()) return others;
  const Job job = load_job_of_weights({.file = run.resolved().string(), .set = {}, .output_dir = run.path.string()});
  if (const auto& quantize = job.spec().model.quantize) {
    const models::PackRequest request{.type = quantize->type, .match = quantize->match, .key = "model.quantize"};
    models::each_packed_tensor(*built.model, request, weight_source(built.pretrained, *built.model), compare);
  }
  return others;
}

}  // namespace

void check_base(const std::filesystem::path& trained, const BuiltModel& built) {
  const std::filesystem::path folder = std::filesystem::absolute(trained / "").lexically_normal().parent_path();
  const auto own = checkpoint_of(folder);
  const RunFolder run = own.empty() ? RunFolder{folder.parent_path()} : run_at(own);
  if (!exists(run.resolved()) || !exists(run.checkpoints())) return;
  const auto branch = checkpoint::branch_folder(run.checkpoints(), branch_of(run, {}).number);
  const auto newest = own.empty() ? checkpoint::newest_listed({branch}) : std::nullopt;
  const std::filesystem::path saved = newest ? newest->folder : own;
  const auto written = saved.empty() ? std::nullopt : frozen_of(saved);
  const int64_t others = written ? count_others(*written, run, built) : 0;
  if (others == 0) return;
  throw Error(ExitCode::data,
              {.what = "model.pretrained holds other values than those that the adapter was trained on, in " +
                       counted(others, "tensor"),
               .where = built.pretrained.string(),
               .hint = "put the weights back that the run began with; its checkpoints have them: " + saved.string()});
}

}  // namespace gputrain::app

#include "gputrain/setup/trained_weights.hpp"

#include <algorithm>
#include <string>

#include <ATen/core/grad_mode.h>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/checkpoint/listing.hpp"
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

namespace {

/// A run that averages its weights has evaluated the average that lies beside them in the optimizer's state.
void load_average(const std::filesystem::path& folder, BuiltModel& built) {
  if (!exists(folder / checkpoint::kManifestName)) return;
  const auto saved = checkpoint::Checkpoint::look_into(folder);
  const auto parts = saved.part_names();
  if (std::ranges::count(parts, "optimizer") == 0) return;
  const checkpoint::Part& state = saved.part("optimizer");
  auto targets = checkpoint::values_per_parameter(*built.arena);
  for (auto& target : targets) target.name = std::string(optim::WeightAverage::kName) + "." + target.name;
  for (auto& [name, buffer] : train::buffers_of(*built.model))
    targets.push_back({.name = optim::WeightAverage::buffer_name(name), .tensor = buffer, .slice = std::nullopt});
  std::erase_if(targets, [&](const auto& target) { return !state.contains(target.name); });
  const at::NoGradGuard no_grad;
  state.read(targets);
}

}  // namespace

void load_trained(const std::filesystem::path& weights, BuiltModel& built) {
  const auto adapter = built.adapter ? adapter_folder_at(weights) : std::filesystem::path();
  const auto load = [&] {
    if (adapter.empty()) {
      load_weights(*built.model, weights);
    } else {
      load_adapter(*built.model, *built.adapter, adapter);
    }
  };
  if (built.sharded) {
    built.sharded->fill(load, adapter.empty() ? parallel::Values::all : parallel::Values::trained);
  } else {
    load();
  }
  load_average(weights, built);
}

}  // namespace gputrain::app

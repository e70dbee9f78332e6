#include "gputrain/setup/trained_weights.hpp"

#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {

std::filesystem::path weights_of_run(const Job& job, const RunFolder& run) {
  const auto written = job.spec().model.adapter ? run.adapter() : run.weights();
  if (exists(written)) return written;
  const auto branch = checkpoint::branch_folder(run.checkpoints(), branch_of(run, {}).number);
  if (!exists(branch)) return {};
  const auto newest = checkpoint::newest_listed({branch});
  return newest ? newest->folder : std::filesystem::path();
}

void load_trained(const std::filesystem::path& weights, BuiltModel& built) {
  const auto adapter = built.adapter ? adapter_folder_at(weights) : std::filesystem::path();
  const auto load = [&] {
    if (adapter.empty()) {
      load_weights(*built.model, weights);
    } else {
      load_adapter(*built.model, *built.adapter, adapter);
    }
  };
  if (!built.sharded) return load();
  built.sharded->fill(load, adapter.empty() ? parallel::Values::all : parallel::Values::trained);
}

}  // namespace gputrain::app

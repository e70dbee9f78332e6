#include "gputrain/resume/checkpoint_room.hpp"

#include <algorithm>
#include <string>

#include <ATen/ops/full.h>

#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/setup/training_state.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {
namespace {

int64_t bytes_of(const checkpoint::NamedTensors& tensors) {
  return static_cast<int64_t>(checkpoint::safetensors_bytes(tensors));
}

/// Counts the checkpoints of the newest branch. 0 if it cannot be read, for example because the mirror is away.
int64_t checkpoints_in(const std::filesystem::path& folder) {
  try {
    const auto branch = checkpoint::branch_folder(folder, checkpoint::newest_branch_in(folder));
    return static_cast<int64_t>(checkpoint::finished_in({branch}).size());
  } catch (const Error&) {
    return 0;
  }
}

/// Returns the size of the frozen weights, which are written once; 0 if they are there already.
int64_t frozen_bytes_for(models::Model& model, const std::filesystem::path& folder) {
  const auto frozen = frozen_weights(model);
  if (frozen.empty()) return 0;
  std::error_code unknown;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unknown)) {
    if (entry.path().filename().string().starts_with("frozen-")) return 0;
  }
  return bytes_of(frozen);
}

int64_t most_saves(const train::Plan& plan) {
  if (plan.save.is_never()) return 1;  // at the end
  const int64_t every = std::max<int64_t>(1, plan.save.steps);
  return plan.total_steps / every + (plan.total_steps % every > 0 ? 1 : 0);
}

}  // namespace

std::optional<int64_t> free_bytes_below(const std::filesystem::path& folder) {
  std::error_code unknown;
  const auto space = std::filesystem::space(existing_part_of(folder), unknown);
  if (unknown || space.capacity == 0) return std::nullopt;
  return static_cast<int64_t>(space.available);
}

int64_t checkpoint_bytes(TrainingSetup& setup) {
  auto& [context, datasets, plan, built, optimizer_stack, gradient_sync, micro_batch] = setup;
  int64_t own = 0;
  if (context.rank() == 0) {
    const at::Tensor generator = device::generator_state(context.device).unsqueeze(0);
    own += bytes_of({{"cpu", generator.expand({context.groups.world_size(), -1})}});
    if (!built.has_parts()) own += bytes_of(trained_weights(*built.model));
  }
  const comm::Mesh& mesh = context.groups.mesh();
  if (const int writer = built.writer_of_weights(mesh, context.rank()); built.has_parts() && writer >= 0)
    own += bytes_of(model_shard(built, writer).tensors);
  if (const int writer = built.writer_of_state(mesh, context.rank()); writer >= 0)
    own += bytes_of(optimizer_shard(built, *optimizer_stack.optimizer, writer).tensors);
  const at::Tensor all = at::full({}, own, at::kLong);
  context.groups.control().all_reduce_sum(all, "bytes of a checkpoint").wait();
  return all.item<int64_t>();
}

std::vector<DiskShortage> disks_too_small(const Job& job, TrainingSetup& setup) {
  const int64_t bytes = checkpoint_bytes(setup);
  std::vector<DiskShortage> found;
  if (setup.context.rank() != 0) return found;
  const train::CheckpointSpec& spec = job.spec().checkpoint;
  const int64_t saves = most_saves(setup.plan);
  const auto look = [&](const std::filesystem::path& folder, const std::filesystem::path& checkpoints,
                        const std::string& other) {
    auto free = free_bytes_below(folder);
    if (!free) return;
    const int64_t frozen = frozen_bytes_for(*setup.built.model, checkpoints);
    *free = std::max<int64_t>(0, *free - frozen);
    const std::string rest =
        frozen > 0 ? " beside " + monitor::bytes(static_cast<double>(frozen)) + " of frozen weights" : "";
    const std::string size = monitor::bytes(static_cast<double>(bytes));
    const int64_t room = *free / std::max<int64_t>(1, bytes), in_all = room + checkpoints_in(checkpoints);
    const auto note = [&](std::string what, const std::string& fewer) {
      const std::string hint = "make room before the first save, " + fewer + "or another " + other;
      found.push_back(
          {.for_one = room == 0,
           .error = {ExitCode::environment, {.what = std::move(what), .where = folder.string(), .hint = hint}}});
    };
    if (room == 0) {
      note("one checkpoint needs " + size + ", " + monitor::bytes(static_cast<double>(*free)) + " are free" + rest, "");
    } else if (in_all <= spec.keep_last && in_all < saves) {
      note("there is room for " + counted(in_all, "checkpoint") + " of " + size + "; checkpoint.keep_last: " +
               std::to_string(spec.keep_last) + " takes one more while the next one is written",
           "keep fewer, ");
    }
  };
  const std::filesystem::path run = job.output_dir;
  look(run, run / "ckpt", "--output-dir");
  if (spec.mirror) look(*spec.mirror, *spec.mirror, "checkpoint.mirror");
  return found;
}

}  // namespace gputrain::app

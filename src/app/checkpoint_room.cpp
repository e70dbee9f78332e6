#include "checkpoint_room.hpp"

#include <algorithm>
#include <string>

#include <ATen/ops/full.h>

#include "checkpointing.hpp"
#include "gputrain/checkpoint/store.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/monitor/format.hpp"
#include "weights.hpp"

namespace gputrain::app {
namespace {

int64_t bytes_of(const checkpoint::NamedTensors& tensors) {
  return static_cast<int64_t>(checkpoint::safetensors_bytes(tensors));
}

}  // namespace

std::optional<int64_t> free_bytes_below(std::filesystem::path folder) {
  std::error_code unknown;
  folder = std::filesystem::absolute(folder, unknown);
  while (!std::filesystem::exists(folder, unknown) && folder.has_relative_path()) folder = folder.parent_path();
  const auto space = std::filesystem::space(folder, unknown);
  if (unknown || space.capacity == 0) return std::nullopt;
  return static_cast<int64_t>(space.available);
}

int64_t checkpoint_bytes(Assembly& assembly) {
  auto& [place, datasets, plan, built, updates, reduction, micro_batch] = assembly;
  int64_t own = 0;
  if (place.rank() == 0) {
    const at::Tensor generator = device::generator_state(place.device).unsqueeze(0);
    own +=
        bytes_of(named_weights(*built.model)) + bytes_of({{"cpu", generator.expand({place.groups.world_size(), -1})}});
  }
  if (place.rank() == 0 || !built.owners.empty())
    own += bytes_of(optimizer_shard(built, *updates.optimizer, place.rank()).tensors);
  if (reduction.power_sgd) own += bytes_of(reduction.shard(place.groups).tensors);
  const at::Tensor all = at::full({}, own, at::kLong);
  place.groups.control().all_reduce_sum(all, "bytes of a checkpoint").wait();
  return all.item<int64_t>();
}

std::vector<Error> disks_too_small(const Job& job, Assembly& assembly) {
  const int64_t bytes = checkpoint_bytes(assembly);
  std::vector<Error> found;
  if (assembly.place.rank() != 0) return found;
  const train::CheckpointSpec& spec = job.spec().checkpoint;
  // The oldest goes when the newest has been read back; without an interval there may be only one.
  const int64_t at_a_time = spec.interval ? spec.keep_last + 1 : 1;
  const auto sized = [](int64_t size) { return monitor::bytes(static_cast<double>(size)); };
  const auto look = [&](const std::filesystem::path& folder, const std::filesystem::path& checkpoints,
                        const std::string& other) {
    const auto there = static_cast<int64_t>(checkpoint::CheckpointStore(checkpoints).list().size());
    const int64_t count = std::max<int64_t>(1, at_a_time - there);
    const auto free = free_bytes_below(folder);
    if (!free || *free >= count * bytes) return;
    const bool has_room_for_one = *free >= bytes;
    const std::string needs =
        has_room_for_one ? counted(count, there > 0 ? "more checkpoint" : "checkpoint") + " of " + sized(bytes) +
                               " will be there at a time (checkpoint.keep_last: " + std::to_string(spec.keep_last) +
                               ", and the one being written), "
                         : "one checkpoint needs " + sized(bytes) + ", ";
    found.push_back({ExitCode::environment,
                     {.what = needs + sized(*free) + " are free",
                      .where = folder.string(),
                      .hint = std::string("make room before the first save, ") +
                              (has_room_for_one && spec.keep_last > 1 ? "keep fewer, " : "") + "or another " + other}});
  };
  const std::filesystem::path run = job.output_dir;
  look(run, run / "ckpt", "--output-dir");
  if (spec.mirror) look(*spec.mirror, *spec.mirror, "checkpoint.mirror");
  return found;
}

}  // namespace gputrain::app

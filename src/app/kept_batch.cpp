#include "kept_batch.hpp"

#include <filesystem>
#include <optional>

#include <ATen/ops/full.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/store.hpp"
#include "run_folder.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

std::optional<checkpoint::Listed> newest_in(const fs::path& folder) {
  for (auto& listed : checkpoint::CheckpointStore(folder).list()) {
    if (listed.problem.empty()) return std::move(listed);
  }
  return std::nullopt;
}

/// Empty: none.
fs::path to_go_on_from(const Job& job) {
  const auto& spec = job.spec().checkpoint;
  if (spec.resume == "never") return {};
  if (spec.resume != "auto" && spec.resume != "must") return spec.resume;
  auto newest = newest_in(RunFolder{job.output_dir}.checkpoints());
  if (spec.mirror) {
    auto copy = newest_in(*spec.mirror);
    if (copy && (!newest || copy->step > newest->step)) newest = std::move(copy);
  }
  return newest ? newest->folder : fs::path();
}

/// What cannot be read is told where the checkpoint is taken up.
int64_t global_batch_before(const Job& job) {
  try {
    const fs::path folder = to_go_on_from(job);
    if (folder.empty()) return 0;
    return checkpoint::Checkpoint::look_into(folder).state().value("global_batch", int64_t{0});
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

int64_t kept_global_batch(const Job& job, Place& place) {
  if (job.spec().train.names_global_batch()) return 0;
  const at::Tensor kept = at::full({}, 0, at::kLong);
  if (place.rank() == 0) kept.fill_(global_batch_before(job));
  place.groups.control().broadcast(kept, 0, "global batch of the checkpoint");
  return kept.item<int64_t>();
}

}  // namespace gputrain::app

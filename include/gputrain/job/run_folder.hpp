// The run folder: its files, and how a run takes it into use.
#pragma once

#include <filesystem>

#include "gputrain/job/run_lock.hpp"

namespace gputrain::app {

struct RunFolder {
  std::filesystem::path path;

  std::filesystem::path resolved() const { return path / "job.resolved.yaml"; }
  std::filesystem::path summary() const { return path / "summary.json"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path ledger() const { return path / "ledger.jsonl"; }
  std::filesystem::path log(int rank) const;
  std::filesystem::path checkpoints() const { return path / "ckpt"; }
  std::filesystem::path save_request() const { return path / "SAVE"; }  // `touch` it to request a checkpoint
  std::filesystem::path weights() const { return path / "model.safetensors"; }
  std::filesystem::path model_config() const { return path / "config.json"; }
};

/// A run folder that this process has locked.
struct TakenRunFolder {
  RunFolder folder;
  RunLock lock;
};

/// Throws Error(environment) if the path cannot be a folder or cannot be accessed. Throws Error(usage) if no run has
/// written there and it holds files that a run would overwrite.
void check_run_folder(const std::filesystem::path& path);

/// The path, or its nearest parent folder that exists.
std::filesystem::path existing_part_of(std::filesystem::path path);

/// Throws Error(usage) if `checkpoint.mirror` is inside this run's folder or belongs to another run.
void check_mirror(const std::filesystem::path& mirror, const std::filesystem::path& run);

/// Throws what take_run_folder() would throw, as far as this can be checked without writing and without disturbing a
/// process that uses the folder.
void check_may_take_run_folder(const std::filesystem::path& path, bool fresh);

/// Creates the folder and locks it. With `fresh`, first moves the content of an earlier run to `<path>.1`, `.2`, ...,
/// so that starting over never overwrites anything. Throws Error(environment) if it cannot be written, Error(usage) if
/// another process uses it.
TakenRunFolder take_run_folder(const std::filesystem::path& path, bool fresh);

}  // namespace gputrain::app

// The run folder: its files, and how a run takes it into use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "gputrain/job/run_lock.hpp"

namespace gputrain::app {

struct RunFolder {
  std::filesystem::path path;

  std::filesystem::path resolved() const { return path / "job.resolved.yaml"; }
  std::filesystem::path report() const { return path / "report.html"; }
  std::filesystem::path summary() const { return path / "summary.json"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path ledger() const { return path / "ledger.jsonl"; }
  std::filesystem::path evaluation() const { return path / "evaluation.json"; }  // of the newest evaluation
  std::filesystem::path log(int rank) const;
  std::filesystem::path checkpoints() const { return path / "ckpt"; }
  std::filesystem::path kernels(int rank) const;                        // choices of GPU kernels
  std::filesystem::path save_request() const { return path / "SAVE"; }  // `touch` it to request a checkpoint
  std::filesystem::path weights() const { return path / "model.safetensors"; }
  std::filesystem::path signature() const { return path / "model.json"; }  // see data/signature.hpp
  std::filesystem::path model_config() const { return path / "config.json"; }
  std::filesystem::path references() const { return path / "reference.safetensors"; }  // see setup/references.hpp
  std::filesystem::path profile() const { return path / "profile"; }                   // what `run --profile` recorded
  std::filesystem::path adapter() const { return path / "adapter"; }  // instead of weights(), if the job has one
};

/// Where a run's history stands. Who goes on from a checkpoint that is not the newest begins a new branch; the run goes
/// on in the branch with the highest number, and leaves the others' checkpoints alone.
struct RunBranch {
  int64_t number = 1;
  std::string from;  // the checkpoint that it began with, until the run has saved that
};
/// By the ledger, or by the run's checkpoints and those in its mirror where they know of a newer one.
RunBranch branch_of(const RunFolder& run, const std::optional<std::string>& mirror);

/// Whether it is that folder or lies below it, whatever names lead there.
bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder);

/// A run folder that this process alone writes.
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

/// Creates the folder and locks it, and with `fresh` first moves an earlier run's content aside to `<path>.1`, `.2`,
/// ...: nothing is ever overwritten by starting over, and what its mirror has is of another branch. Throws
/// Error(environment) when it cannot be written, Error(usage) when another process uses it.
TakenRunFolder take_run_folder(const std::filesystem::path& path, bool fresh, const std::optional<std::string>& mirror);

}  // namespace gputrain::app

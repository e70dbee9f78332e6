// Run folder: its files, and the steps to take it into use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/job/run_lock.hpp"

namespace gputrain::app {

struct RunFolder {
  std::filesystem::path path;

  std::filesystem::path resolved() const { return path / "job.resolved.yaml"; }
  std::filesystem::path report() const { return path / "report.html"; }
  std::filesystem::path summary() const { return path / "summary.json"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path samples() const { return path / "samples.jsonl"; }  // see monitor/samples_file.hpp
  std::filesystem::path ledger() const { return path / "ledger.jsonl"; }
  std::filesystem::path evaluation() const { return path / "evaluation.json"; }  // newest evaluation
  std::filesystem::path log(int rank) const;
  std::filesystem::path checkpoints() const { return path / "ckpt"; }
  std::filesystem::path kernels(int rank) const;                        // choices of GPU kernels
  std::filesystem::path save_request() const { return path / "SAVE"; }  // `touch` it to request a checkpoint
  std::filesystem::path weights() const { return path / "model.safetensors"; }
  std::filesystem::path signature() const { return path / "model.json"; }  // see data/signature.hpp
  std::filesystem::path model_config() const { return path / "config.json"; }
  std::filesystem::path references() const { return path / "reference.safetensors"; }  // see setup/references.hpp
  std::filesystem::path profile() const { return path / "profile"; }                   // records of `run --profile`
  std::filesystem::path adapter() const { return path / "adapter"; }  // replaces weights() if the job has an adapter
};

/// Branch of a run's history. A run that resumes from a checkpoint that is not the newest starts a new branch; it
/// continues the branch with the highest number, and leaves the checkpoints of the others alone.
struct RunBranch {
  int64_t number = 1;
  std::string from;  // checkpoint that it started from, until the run has saved that
};
/// Finds the branch in the ledger, or in checkpoints of the run or its mirror if theirs is newer.
RunBranch branch_of(const RunFolder& run, const std::optional<std::string>& mirror);

/// Returns whether the path is that folder or lies below it, with links resolved.
bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder);

/// Run folder that only this process writes.
struct TakenRunFolder {
  RunFolder folder;
  RunLock lock;
};

/// Throws Error(environment) if the path cannot be a folder or cannot be accessed. Throws Error(usage) if no run has
/// written there and it holds files that a run would overwrite.
void check_run_folder(const std::filesystem::path& path);

/// Returns the path, or its nearest parent folder that exists.
std::filesystem::path existing_part_of(std::filesystem::path path);

/// Throws Error(usage) if `checkpoint.mirror` is inside this run's folder or belongs to another run.
void check_mirror(const std::filesystem::path& mirror, const std::filesystem::path& run);

/// Throws the errors of take_run_folder() that can be found without writing and without disturbing a running process.
void check_may_take_run_folder(const std::filesystem::path& path, bool fresh);

/// Returns the path to which a run that starts over moves the earlier one: `<run>.1`, or the next free number.
std::filesystem::path path_for_earlier_run(const std::filesystem::path& run);
/// Returns the runs that were moved so, by number.
std::vector<std::filesystem::path> earlier_runs_of(const std::filesystem::path& run);

/// Creates the folder and locks it. With `fresh` it first moves an earlier run to path_for_earlier_run(), so that
/// nothing is overwritten, and starts another branch if the mirror may have checkpoints. Throws Error(environment) if
/// the folder cannot be written, Error(usage) if another process uses it.
TakenRunFolder take_run_folder(const std::filesystem::path& path, bool fresh, const std::optional<std::string>& mirror);

}  // namespace gputrain::app

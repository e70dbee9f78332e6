#include "gputrain/checkpoint/store.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "gputrain/checkpoint/setting_aside.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/log.hpp"
#include "places.hpp"
#include "together.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

Manifest::File write_part(const fs::path& folder, const Shard& shard) {
  const fs::path path = folder / file_name(shard.part, shard.rank, shard.ranks);
  return {
      .seal = write_safetensors(path, shard.tensors), .part = shard.part, .rank = shard.rank, .slices = shard.slices};
}

/// Writes everything into a folder; the manifest comes last.
void write_folder(const fs::path& folder, const Snapshot& snapshot) {
  Manifest manifest{.step = snapshot.step, .origin = snapshot.origin, .files = {}, .score = snapshot.score};
  for (const auto& [part, tensors] : snapshot.files) {
    manifest.files[file_name(part, 0, 1)] = write_part(folder, {.part = part, .tensors = tensors, .slices = {}});
  }
  for (const Shard& shard : snapshot.shards) {
    manifest.files[file_name(shard.part, shard.rank, shard.ranks)] = write_part(folder, shard);
  }
  if (snapshot.frozen) manifest.frozen = snapshot.frozen->note();
  manifest.files.merge(collect(folder, snapshot.awaited, snapshot.patience_seconds));
  write_file_atomically(folder / kStateName, snapshot.state, ExitCode::checkpoint);
  Sealer sealer;
  sealer.add(snapshot.state.data(), snapshot.state.size());
  manifest.files[kStateName] = {.seal = sealer.seal(), .part = {}, .slices = {}};
  write_file_atomically(folder / kManifestName, to_json(manifest), ExitCode::checkpoint);
}

/// What a rank other than 0 does.
void write_own_shards(const fs::path& folder, const Snapshot& snapshot) {
  for (const Shard& shard : snapshot.shards) {
    const std::string name = file_name(shard.part, shard.rank, shard.ranks);
    try {
      hand_in(folder, name, write_part(folder, shard));
    } catch (const std::exception& failure) {
      hand_in_failure(folder, name, failure.what());
      throw;
    }
  }
}

uint64_t bytes_needed(const Snapshot& snapshot, const fs::path& folder) {
  uint64_t needed = snapshot.bytes() + snapshot.state.size() + (uint64_t{1} << 16);
  if (snapshot.frozen) needed += snapshot.frozen->missing_bytes(folder);
  for (const Shard& shard : snapshot.shards) {  // the others' are about as large
    for (const auto& [name, tensor] : shard.tensors) needed += static_cast<uint64_t>(shard.ranks - 1) * tensor.nbytes();
  }
  return needed;
}

void verify_all(const fs::path& folder, const Manifest& manifest) {
  verify(folder, manifest);
  if (manifest.frozen) verify_frozen(folder, *manifest.frozen);
}

/// Whether nothing of it is missing.
bool is_whole(const fs::path& folder) {
  try {
    look_at_files(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Takes a checkpoint away so that no moment shows half of one under a finished name.
void remove_checkpoint(const fs::path& folder) {
  on_disk(folder, "cannot remove an old checkpoint", [&] {
    const fs::path leaving = partial_name_of(folder);
    fs::rename(folder, leaving);
    std::error_code failure;
    fs::remove_all(leaving, failure);
    if (!failure) return;
    std::error_code ignored;
    if (is_whole(leaving)) fs::rename(leaving, folder, ignored);
    throw fs::filesystem_error("remove", folder, failure);
  });
}

/// The steps of the best `count` of these, by the metric of the newest one that has a score.
std::vector<int64_t> best_of(const std::vector<Listed>& newest_first, const Retention& retention) {
  std::vector<const Listed*> scored;
  for (const Listed& listed : newest_first) {
    if (!listed.problem.empty() || !listed.score) continue;
    if (scored.empty() || listed.score->metric == scored.front()->score->metric) scored.push_back(&listed);
  }
  const auto is_better = [&](const Listed* a, const Listed* b) {
    const double first = a->score->value, second = b->score->value;
    return retention.smaller_is_better ? first < second : first > second;
  };
  std::stable_sort(scored.begin(), scored.end(), is_better);  // of equals the newer one
  std::vector<int64_t> steps;
  for (const Listed* listed : scored) steps.push_back(listed->step);
  return steps;
}

/// A relative link that people may follow. Replaced in one move; a file system without links does without.
void set_hint(const fs::path& link, const std::string& target) {
  std::error_code ignored;
  const fs::path fresh = partial_name_of(link);
  fs::remove(fresh, ignored);
  fs::create_symlink(target, fresh, ignored);
  fs::rename(fresh, link, ignored);
}

}  // namespace

uint64_t Snapshot::bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, tensors] : files) {
    for (const auto& [tensor_name, tensor] : tensors) sum += tensor.nbytes();
  }
  for (const Shard& shard : shards) {
    for (const auto& [name, tensor] : shard.tensors) sum += tensor.nbytes();
  }
  return sum;
}

CheckpointStore::CheckpointStore(fs::path folder, Retention retention)
    : folder_(std::move(folder)), retention_(retention) {
  GPUTRAIN_ASSERT(retention.keep_last >= 1, "at least the newest checkpoint is kept");
}

fs::path CheckpointStore::folder_of(int64_t step) const { return folder_ / folder_name(step); }

fs::path CheckpointStore::partial_folder_of(int64_t step) const { return partial_name_of(folder_of(step)); }

void CheckpointStore::prepare(const Snapshot& snapshot) {
  on_disk(folder_, "cannot create the folder", [&] { fs::create_directories(folder_); });
  tell_once(remove_partial_folders(folder_));
  check_room(folder_, bytes_needed(snapshot, folder_),
             "free space there, or keep fewer: checkpoint.keep_last, checkpoint.keep_best");
  const fs::path written = partial_folder_of(snapshot.step);
  on_disk(written, "cannot create the folder", [&] { fs::create_directory(written); });
}

fs::path CheckpointStore::write(const Snapshot& snapshot) {
  const fs::path target = folder_of(snapshot.step), written = partial_folder_of(snapshot.step);
  if (snapshot.rank != 0) {
    write_own_shards(written, snapshot);
    return target;
  }
  if (snapshot.awaited.empty()) prepare(snapshot);
  try {
    if (snapshot.frozen) snapshot.frozen->put_into(folder_);
    write_folder(written, snapshot);
    for (const fs::path& other : snapshot.synced_before) sync_file(other, ExitCode::checkpoint);
    put_in_place(written, target);
  } catch (...) {
    std::error_code ignored;  // the first error is the one to tell
    fs::remove_all(written, ignored);
    throw;
  }
  return target;
}

void CheckpointStore::tell_once(const std::string& trouble) {
  if (!trouble.empty() && std::exchange(told_, trouble) != trouble) log::warning(trouble);
}

void CheckpointStore::withdraw(const Snapshot& snapshot, const std::string& reason) const {
  if (snapshot.rank == 0) return;
  for (const Shard& shard : snapshot.shards)
    hand_in_failure(partial_folder_of(snapshot.step), file_name(shard.part, shard.rank, shard.ranks), reason);
}

void CheckpointStore::confirm(int64_t step) {
  const fs::path folder = folder_of(step);
  try {
    verify(folder, look_at_files(folder));
  } catch (const Damage&) {
    bring_back_replaced(folder);
    throw;
  }
  remove_replaced_folders(folder_);
  try {
    prune_up_to(step, /*only_tell=*/false);
    remove_unused_frozen(folder_);
  } catch (const Error& failure) {  // what was saved is none the worse
    tell_once(failure.what());
  }
  point_hints_at(step);
}

fs::path CheckpointStore::save(const Snapshot& snapshot) {
  fs::path written = write(snapshot);
  confirm(snapshot.step);
  return written;
}

void CheckpointStore::put_back_replaced() const { checkpoint::put_back_replaced(folder_); }

fs::path CheckpointStore::replaced_by(const fs::path& folder) { return replaced_name_of(folder); }

bool CheckpointStore::bring_back_replaced(const fs::path& damaged) const {
  std::error_code unknown;
  if (!fs::exists(replaced_name_of(damaged), unknown)) return false;
  set_aside(damaged, "bad");
  put_back_replaced();
  return true;
}

void CheckpointStore::remove_replaced(const fs::path& folder) const {
  std::error_code ignored;  // the next save tries again, and tells
  fs::remove_all(replaced_name_of(folder), ignored);
}

CheckpointStore::Search CheckpointStore::find_newest(const Read& read) const {
  Search search;
  for (const int64_t step : steps_in(folder_)) {
    const fs::path path = folder_ / folder_name(step);
    try {
      Checkpoint candidate = Checkpoint::look_into(path);
      if (candidate.step() != step)
        throw Damage(fmt::format("its manifest is that of step {}", candidate.step()), path);
      if (!lineage_.includes(candidate.manifest().origin.lineage, step)) continue;
      read ? read(candidate) : verify_all(path, candidate.manifest());
      search.newest = std::move(candidate);
      return search;
    } catch (const Damage& damage) {
      search.rejected.push_back({path, damage.what()});
    } catch (const Unreadable& trouble) {
      search.rejected.push_back({path, trouble.what(), /*is_damaged=*/false});
    }
  }
  return search;
}

std::vector<Listed> CheckpointStore::list() const { return list_checkpoints(folder_); }

std::vector<fs::path> CheckpointStore::prune(const Search& verified, bool only_tell) const {
  if (!verified.newest) return {};
  const int64_t newest = verified.newest->step();
  std::vector<fs::path> removed = prune_up_to(newest, only_tell);
  if (!only_tell && !removed.empty()) {
    remove_unused_frozen(folder_);
    point_hints_at(newest);
  }
  return removed;
}

/// A damaged checkpoint counts for nothing, and goes once enough good ones are newer.
std::vector<fs::path> CheckpointStore::prune_up_to(int64_t newest, bool only_tell) const {
  std::vector<Listed> candidates;
  for (Listed& listed : list()) {
    if (listed.step <= newest) candidates.push_back(std::move(listed));  // others are of a branch that was left
  }
  std::set<int64_t> kept;
  const std::vector<int64_t> best = best_of(candidates, retention_);
  const auto count = std::min(best.size(), static_cast<size_t>(retention_.keep_best));
  kept.insert(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(count));
  std::vector<fs::path> removed;
  std::optional<Error> failure;  // the first one; the others are removed all the same
  int64_t last = 0;
  for (const Listed& listed : candidates) {
    const bool is_good = listed.problem.empty();
    const bool is_recent = last < retention_.keep_last;
    if (is_good) ++last;
    const bool is_multiple = retention_.keep_every > 0 && listed.step % retention_.keep_every == 0;
    if (is_recent || (is_good && (is_multiple || kept.contains(listed.step)))) continue;
    try {
      if (!only_tell) remove_checkpoint(listed.folder);
      removed.push_back(listed.folder);
    } catch (const Error& trouble) {
      if (!failure) failure = trouble;
    }
  }
  if (failure) throw Error(*failure);
  return removed;
}

void CheckpointStore::point_hints_at(int64_t newest) const {
  set_hint(folder_ / "latest", folder_name(newest));
  const std::vector<int64_t> best = best_of(list(), retention_);
  std::error_code ignored;
  if (best.empty()) fs::remove(folder_ / "best", ignored);
  if (!best.empty()) set_hint(folder_ / "best", folder_name(best.front()));
}

}  // namespace gputrain::checkpoint

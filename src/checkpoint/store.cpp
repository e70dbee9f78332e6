#include "gputrain/checkpoint/store.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "atomic_folder.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/log.hpp"
#include "shard_commit.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

Manifest::File write_part(const fs::path& folder, const Shard& shard) {
  const fs::path path = folder / file_name(shard.part, shard.rank, shard.ranks);
  return {
      .seal = write_safetensors(path, shard.tensors), .part = shard.part, .rank = shard.rank, .slices = shard.slices};
}

/// Writes all files into a folder, the manifest last.
void write_folder(const fs::path& folder, const Snapshot& snapshot) {
  Manifest manifest{.step = snapshot.step,
                    .origin = snapshot.origin,
                    .files = {},
                    .score = snapshot.score,
                    .for_good = snapshot.for_good};
  for (const auto& [part, tensors] : snapshot.files) {
    manifest.files[file_name(part, 0, 1)] = write_part(folder, {.part = part, .tensors = tensors, .slices = {}});
  }
  for (const Shard& shard : snapshot.shards) {
    manifest.files[file_name(shard.part, shard.rank, shard.ranks)] = write_part(folder, shard);
  }
  if (snapshot.frozen) manifest.frozen = snapshot.frozen->note();
  manifest.files.merge(await_shards(folder, snapshot.awaited, snapshot.patience_seconds));
  write_file_atomically(folder / kStateName, snapshot.state, ExitCode::checkpoint);
  Sealer sealer;
  sealer.add(snapshot.state.data(), snapshot.state.size());
  manifest.files[kStateName] = {.seal = sealer.seal(), .part = {}, .slices = {}};
  write_file_atomically(folder / kManifestName, to_json(manifest), ExitCode::checkpoint);
}

/// Writes the shards of a rank other than 0.
void write_own_shards(const fs::path& folder, const Snapshot& snapshot) {
  for (const Shard& shard : snapshot.shards) {
    const std::string name = file_name(shard.part, shard.rank, shard.ranks);
    try {
      report_shard(folder, name, write_part(folder, shard));
    } catch (const std::exception& failure) {
      report_shard_failure(folder, name, failure.what());
      throw;
    }
  }
}

uint64_t bytes_needed(const Snapshot& snapshot, const fs::path& folder) {
  uint64_t needed = snapshot.bytes() + snapshot.state.size() + (uint64_t{1} << 16);
  if (snapshot.frozen) needed += snapshot.frozen->missing_bytes(folder);
  for (const Shard& shard : snapshot.shards) {  // other ranks' shards have about the same size
    for (const auto& [name, tensor] : shard.tensors) needed += static_cast<uint64_t>(shard.ranks - 1) * tensor.nbytes();
  }
  return needed;
}

void verify_all(const fs::path& folder, const Manifest& manifest) {
  verify(folder, manifest);
  if (manifest.frozen) verify_frozen(folder, *manifest.frozen);
}

/// Returns whether all files exist with their sizes.
bool is_whole(const fs::path& folder) {
  try {
    look_at_files(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Renames a checkpoint first, so that a finished name never shows half of it.
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

/// Returns the best of these first, one of each step, by the metric of the newest one that has a score; of equals, the
/// earlier one, as in the results of a run.
std::vector<const Listed*> best_of(const std::vector<Listed>& newest_first, const Retention& retention) {
  std::vector<const Listed*> scored;
  for (const Listed& listed : newest_first) {
    if (!listed.problem.empty() || !listed.score) continue;
    if (!scored.empty() && scored.back()->step == listed.step) continue;
    if (scored.empty() || listed.score->metric == scored.front()->score->metric) scored.push_back(&listed);
  }
  const auto is_better = [&](const Listed* a, const Listed* b) {
    const double first = a->score->value, second = b->score->value;
    return first == second ? a->step < b->step : retention.smaller_is_better ? first < second : first > second;
  };
  std::stable_sort(scored.begin(), scored.end(), is_better);
  return scored;
}

/// Compares the manifests of two checkpoints, which have the hashes of all files.
bool is_same_checkpoint(const fs::path& a, const fs::path& b) {
  try {
    return read_text(a / kManifestName) == read_text(b / kManifestName);
  } catch (const Error&) {
    return false;
  }
}

/// Gives a step's only checkpoint the step's own name, once its first save is gone. If that fails, or the process is
/// killed before, its present name is as good.
fs::path with_own_name(const fs::path& folder, int64_t step) {
  fs::path own = folder.parent_path() / folder_name(step);
  if (folder == own || fs::exists(fs::symlink_status(own))) return folder;
  try {
    sync_folder(folder.parent_path(), ExitCode::checkpoint);  // the first one must not come back under that name
    fs::rename(folder, own);
    return own;
  } catch (const std::exception&) {
    return folder;
  }
}

/// Removes a link for people, or the folder in its place if the run was copied by a program that follows links: it is
/// equal to a checkpoint. Returns what is wrong with anything else there.
std::string clear_hint(const fs::path& link, const fs::path& checkpoints) {
  std::error_code unknown;
  const auto status = fs::symlink_status(link, unknown);
  if (!fs::exists(status)) return {};
  if (fs::is_symlink(status)) {
    fs::remove(link, unknown);
    return unknown ? link.string() + " cannot be removed: " + unknown.message() : "";
  }
  std::vector<fs::path> folders;
  for (const auto& [number, branch] : branches_in(checkpoints)) folders.push_back(branch);
  for (const auto& [step, folder] : finished_in(folders, nullptr)) {
    if (!is_same_checkpoint(link, folder)) continue;
    const fs::path leaving = partial_name_of(link);
    fs::rename(link, leaving, unknown);
    if (!unknown) fs::remove_all(leaving, unknown);
    if (!unknown) return {};
  }
  return link.string() + " is no link and no copy of a checkpoint here: it stays as it is, and does not show the " +
         link.filename().string() + " checkpoint";
}

/// Sets a relative link for people, replaced atomically. Returns what is in its way; a file system may have no links.
std::string set_hint(const fs::path& link, const std::string& target, const fs::path& checkpoints) {
  std::error_code failure;
  if (fs::exists(fs::symlink_status(link, failure)) && !fs::is_symlink(fs::symlink_status(link, failure))) {
    if (std::string obstacle = clear_hint(link, checkpoints); !obstacle.empty()) return obstacle;
  }
  const fs::path fresh = partial_name_of(link);
  fs::remove(fresh, failure);
  fs::create_symlink(target, fresh, failure);
  if (failure) return {};
  fs::rename(fresh, link, failure);
  if (!failure) return {};
  std::error_code ignored;
  fs::remove(fresh, ignored);
  return link.string() + " shows an older checkpoint: " + failure.message();
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

Search find_newest(const std::vector<fs::path>& folders, const Read& read) {
  Search search;
  for (const auto& [step, path] : finished_in(folders, &search.unreadable)) {
    try {
      Checkpoint candidate = Checkpoint::look_into(path);
      if (candidate.step() != step)
        throw Damage(fmt::format("its manifest is that of step {}", candidate.step()), path);
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

fs::path archive_checkpoint(const fs::path& folder) {
  return on_disk(folder, "cannot set a checkpoint aside", [&] {
    fs::path aside = folder.string() + ".bad";
    for (int number = 2; fs::exists(aside); ++number) aside = fmt::format("{}.bad-{}", folder.string(), number);
    fs::rename(folder, aside);
    return aside;
  });
}

CheckpointStore::CheckpointStore(fs::path checkpoints, Retention retention, int64_t branch)
    : root_(std::move(checkpoints)), folder_(branch_folder(root_, branch)), retention_(retention) {
  GPUTRAIN_ASSERT(retention.keep_last >= 1, "at least the newest checkpoint is kept");
}

fs::path CheckpointStore::partial_folder_of(int64_t step) const { return partial_name_of(folder_ / folder_name(step)); }

void CheckpointStore::prepare(const Snapshot& snapshot) {
  create_folder(folder_);
  tell_once(remove_partial_folders(folder_));
  // While the checkpoints that they are copies of are there.
  for (const char* name : {"latest", "best"})
    if (fs::is_directory(fs::symlink_status(root_ / name))) clear_hint(root_ / name, root_);
  check_room(folder_, bytes_needed(snapshot, folder_),
             "free space there, or keep fewer: checkpoint.keep_last, checkpoint.keep_best");
  const fs::path written = partial_folder_of(snapshot.step);
  bool is_new = false;
  on_disk(written, "cannot create the folder", [&] { is_new = fs::create_directory(written); });
  // Other ranks' notes of a save that did not end would pass for those of this one.
  if (!is_new && !snapshot.awaited.empty())
    throw Error(ExitCode::checkpoint, {.what = "a save that did not end cannot be removed", .where = written.string()});
}

fs::path CheckpointStore::write(const Snapshot& snapshot) {
  const fs::path written = partial_folder_of(snapshot.step);
  if (snapshot.rank != 0) {
    write_own_shards(written, snapshot);
    return written;
  }
  if (snapshot.awaited.empty()) prepare(snapshot);
  try {
    if (snapshot.frozen) snapshot.frozen->put_into(folder_);
    write_folder(written, snapshot);
    for (const fs::path& other : snapshot.synced_before) sync_file(other, ExitCode::checkpoint);
    return commit_folder(written, folder_, snapshot.step);
  } catch (...) {
    std::error_code ignored;  // the first error is the one to tell
    fs::remove_all(written, ignored);
    throw;
  }
}

void CheckpointStore::tell_once(const std::string& trouble) {
  if (!trouble.empty() && std::exchange(told_, trouble) != trouble) log::warning(trouble);
}

void CheckpointStore::withdraw(const Snapshot& snapshot, const std::string& reason) const {
  if (snapshot.rank == 0) return;
  for (const Shard& shard : snapshot.shards)
    report_shard_failure(partial_folder_of(snapshot.step), file_name(shard.part, shard.rank, shard.ranks), reason);
}

fs::path CheckpointStore::confirm(const fs::path& written) {
  const Manifest manifest = look_at_files(written);
  verify(written, manifest);
  try {
    prune_up_to(written, /*only_tell=*/false);
    remove_unused_frozen(folder_);
  } catch (const Error& failure) {  // the saved checkpoint is good all the same
    tell_once(failure.what());
  }
  fs::path folder = with_own_name(written, manifest.step);
  point_hints_at(folder);
  return folder;
}

fs::path CheckpointStore::save(const Snapshot& snapshot) { return confirm(write(snapshot)); }

std::vector<Listed> CheckpointStore::list() const { return list_checkpoints(folder_); }

std::vector<fs::path> CheckpointStore::prune(const Search& verified, bool only_tell) const {
  if (!verified.newest) return {};
  std::vector<fs::path> removed = prune_up_to(verified.newest->folder(), only_tell);
  if (!only_tell && !removed.empty()) {
    remove_unused_frozen(folder_);
    point_hints_at(with_own_name(verified.newest->folder(), verified.newest->step()));
  }
  return removed;
}

/// Removes the checkpoints before `newest` that retention does not keep. A damaged checkpoint counts for nothing, and
/// goes once enough good ones are newer. One whose step was saved again goes.
std::vector<fs::path> CheckpointStore::prune_up_to(const fs::path& newest, bool only_tell) const {
  std::vector<Listed> candidates;
  for (Listed& listed : list()) {
    if (!candidates.empty() || listed.folder == newest) candidates.push_back(std::move(listed));
  }
  std::set<int64_t> kept;
  const std::vector<const Listed*> best = best_of(candidates, retention_);
  for (size_t i = 0; i < std::min(best.size(), static_cast<size_t>(retention_.keep_best)); ++i)
    kept.insert(best[i]->step);
  std::vector<fs::path> removed;
  std::optional<Error> failure;  // the first one; the others are removed all the same
  int64_t good_count = 0, good_step = -1;
  for (const Listed& listed : candidates) {
    const bool is_saved_again = listed.step == good_step;
    const bool is_good = listed.problem.empty() && !is_saved_again;
    const bool is_recent = good_count < retention_.keep_last && !is_saved_again;
    if (is_good) {
      ++good_count;
      good_step = listed.step;
    }
    const bool is_multiple = retention_.keep_every > 0 && listed.step % retention_.keep_every == 0;
    const bool is_for_good = retention_.by_mark ? listed.for_good.value_or(is_multiple) : is_multiple;
    if (is_recent || (is_good && (is_for_good || kept.contains(listed.step)))) continue;
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

void CheckpointStore::point_hints_at(const fs::path& newest) const {
  std::string obstacles = set_hint(root_ / "latest", newest.lexically_relative(root_), root_);
  const std::vector<Listed> listed = list();
  const std::vector<const Listed*> best = best_of(listed, retention_);
  const std::string more = best.empty()
                               ? clear_hint(root_ / "best", root_)
                               : set_hint(root_ / "best", best.front()->folder.lexically_relative(root_), root_);
  obstacles += (obstacles.empty() || more.empty() ? "" : "; ") + more;
  if (std::exchange(told_of_hints_, obstacles) != obstacles && !obstacles.empty()) log::warning(obstacles);
}

}  // namespace gputrain::checkpoint

// Command `gputrain ckpt prune`.
#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/inspect/ckpt_folder.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/job/run_lock.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/progress.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using Kind = CkptEntry::Kind;
using Json = nlohmann::ordered_json;

struct Removal {
  std::vector<const CkptEntry*> removed, kept;
  std::map<fs::path, std::string> damaged;  // checkpoints newer than the newest good one

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto* entry : removed) sum += entry->bytes;
    return sum;
  }
};

void remove_folder(const fs::path& folder) {
  std::error_code failure;
  fs::remove_all(folder, failure);
  if (failure) {
    throw Error(ExitCode::checkpoint, {.what = "cannot remove it: " + failure.message(), .where = folder.string()});
  }
}

/// Removes the checkpoints that the request does not keep; removes nothing in a dry run.
Removal prune_folder(const fs::path& folder, const std::vector<CkptEntry>& entries, const PruneRequest& request) {
  const checkpoint::CheckpointStore store(folder,
                                          {.keep_last = request.keep_last,
                                           .keep_best = request.keep_best,
                                           .keep_every = request.keep_every,
                                           .smaller_is_better = tasks::smaller_is_better(metric_of(entries))},
                                          checkpoint::newest_branch_in(folder));
  const auto search = store.find_newest();
  if (!search.newest && !search.rejected.empty()) {
    const auto& newest = search.rejected.front();
    throw Error(ExitCode::checkpoint,
                {.what = "no checkpoint verifies, so nothing was removed; the newest, " +
                         newest.folder.filename().string() + ": " + told_within(newest.folder, newest.reason),
                 .where = folder.string(),
                 .hint = "gputrain ckpt verify tells what is wrong with each"});
  }
  const auto pruned = store.prune(search, request.dry_run);
  Removal removal;
  for (const auto& rejected : search.rejected) {
    removal.damaged[rejected.folder] = told_within(rejected.folder, rejected.reason);
  }
  for (const auto& entry : entries) {
    const bool goes = entry.kind == Kind::left_over || (entry.kind == Kind::set_aside && request.set_aside);
    if (goes && !request.dry_run) remove_folder(entry.folder);
    const bool is_pruned = std::find(pruned.begin(), pruned.end(), entry.folder) != pruned.end();
    (goes || is_pruned ? removal.removed : removal.kept).push_back(&entry);
  }
  return removal;
}

/// Locks the run folder against runs.
RunLock lock_for_pruning(const fs::path& folder) {
  try {
    return RunLock(folder.parent_path().empty() ? "." : folder.parent_path());
  } catch (const Error& error) {
    throw Error(error.code(),
                {.what = error.parts().what,
                 .where = error.parts().where,
                 .hint = "prune after the run has ended (checkpoint.keep_last prunes during a run), or use --dry-run"});
  }
}

std::string removal_text(const Removal& removal, const PruneRequest& request, const fs::path& folder) {
  TextTable table("llrl");
  for (const auto* entry : removal.removed) {
    table.add({request.dry_run ? "would remove" : "removed", entry->name(), size_text(entry->bytes)});
  }
  for (const auto* entry : removal.kept) {
    const auto damaged = removal.damaged.find(entry->folder);
    const bool is_aside = entry->kind == Kind::set_aside;
    table.add({"kept", entry->name(), size_text(entry->bytes),
               damaged != removal.damaged.end() ? "does not verify: " + damaged->second
               : is_aside                       ? "--set-aside removes it"
                                                : ""});
  }
  return table.text() + fmt::format("{} {} in {}\n", size_text(removal.bytes()),
                                    request.dry_run ? "would be freed" : "freed", folder.string());
}

Json removal_json(const Removal& removal, const PruneRequest& request, const fs::path& folder) {
  Json json{{"folder", folder.string()},
            {"dry_run", request.dry_run},
            {"removed", Json::array()},
            {"kept", Json::array()},
            {"bytes_freed", removal.bytes()}};
  for (const auto* entry : removal.removed) json["removed"].push_back(entry_json(*entry));
  for (const auto* entry : removal.kept) {
    Json item = entry_json(*entry);
    const auto damaged = removal.damaged.find(entry->folder);
    item["problem"] = damaged == removal.damaged.end() ? Json(nullptr) : Json(damaged->second);
    json["kept"].push_back(std::move(item));
  }
  return json;
}

}  // namespace

int ckpt_prune_command(const PruneRequest& request) {
  const fs::path folder = checkpoints_folder(request.run);
  if (folder.filename() != "ckpt") {
    throw Error(ExitCode::usage, {.what = "not a run: it has no ckpt/",
                                  .where = request.run,
                                  .hint = "prune works only on a run folder, because its lock shows if a run uses it"});
  }
  const RunLock lock = request.dry_run ? RunLock() : lock_for_pruning(folder);
  const auto entries = entries_of(folder);
  const Removal removal = prune_folder(folder, entries, request);
  if (request.json)
    print_json(removal_json(removal, request, folder));
  else
    std::fputs(removal_text(removal, request, folder).c_str(), stdout);
  return 0;
}

}  // namespace gputrain::app

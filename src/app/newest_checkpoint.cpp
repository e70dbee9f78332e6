#include "newest_checkpoint.hpp"

#include <string>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"

namespace gputrain::app {
namespace {

using checkpoint::CheckpointStore;
using Search = CheckpointStore::Search;

/// By manifest and sizes; -1: there is none, or no looking.
int64_t newest_step(const CheckpointStore& store) {
  try {
    for (const auto& listed : store.list()) {
      if (listed.problem.empty()) return listed.step;
    }
  } catch (const Error& error) {
    log::warning(error.what());
  }
  return -1;
}

/// A mirror that cannot be read has none.
Search newest_in_mirror(const CheckpointStore& mirror, const CheckpointStore::Read& read) {
  try {
    return mirror.find_newest(read);
  } catch (const Error& error) {
    if (error.code() != ExitCode::checkpoint) throw;
    log::warning(std::string("the mirror cannot be read: ") + error.what());
    return {};
  }
}

void take_rejected(Search& search, Search& from) {
  for (auto& rejected : from.rejected) search.rejected.push_back(std::move(rejected));
}

/// The folder whose newest is newer is read first, so that mostly only one is read.
Search search_both(const CheckpointStore& own, const CheckpointStore& mirror, const CheckpointStore::Read& read) {
  const int64_t own_step = newest_step(own), mirror_step = newest_step(mirror);
  if (mirror_step <= own_step) {
    Search search = own.find_newest(read);
    if (search.newest && search.newest->step() >= mirror_step) return search;
    Search other = newest_in_mirror(mirror, read);
    const bool is_newer = other.newest && (!search.newest || other.newest->step() > search.newest->step());
    if (is_newer) search.newest = std::move(other.newest);
    if (!is_newer && other.newest) read(*search.newest);  // what was read last must be what counts
    take_rejected(search, other);
    return search;
  }
  Search search = newest_in_mirror(mirror, read);
  const int64_t found = search.newest ? search.newest->step() : -1;
  if (found > own_step) {
    for (const auto& listed : own.list()) {  // passed over without being read
      if (listed.step >= found && !listed.problem.empty()) search.rejected.push_back({listed.folder, listed.problem, false});
    }
    return search;
  }
  Search other = own.find_newest(read);
  const bool is_as_new = other.newest && other.newest->step() >= found;
  if (is_as_new) search.newest = std::move(other.newest);
  if (!is_as_new && other.newest) read(*search.newest);
  take_rejected(search, other);
  return search;
}

/// Takes a damaged checkpoint out of the way and returns its new name; empty where a mirror does not allow that.
std::string quarantine(const CheckpointStore& own, const CheckpointStore* mirror, const std::filesystem::path& folder) {
  if (folder.parent_path() == own.folder()) return own.set_aside(folder, "bad").filename().string();
  try {
    return mirror->set_aside(folder, "bad").filename().string();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::optional<checkpoint::Checkpoint> newest_good(const CheckpointStore& own, const CheckpointStore* mirror,
                                                  const CheckpointStore::Read& read) {
  Search search = mirror == nullptr ? own.find_newest(read) : search_both(own, *mirror, read);
  if (!search.newest && !search.rejected.empty()) {
    throw Error(ExitCode::checkpoint,
                {.what = "none of the run's checkpoints is good; the newest: " + search.rejected.front().reason,
                 .where = own.folder().string(),
                 .hint = "put a good copy there, or start over: --set checkpoint.resume=never keeps this run aside"});
  }
  for (const auto& rejected : search.rejected) {
    // What cannot be read now may be good later.
    const std::string aside = rejected.is_damaged ? quarantine(own, mirror, rejected.folder) : "";
    log::warning("checkpoint skipped: " + rejected.reason + (aside.empty() ? "" : "; it is now " + aside));
  }
  return std::move(search.newest);
}

void leave_newer(const CheckpointStore& store, int64_t step) {
  for (const auto& listed : store.list()) {
    if (listed.step <= step || !listed.problem.empty()) continue;
    const auto aside = store.set_aside(listed.folder, "left");
    log::warning(listed.folder.string() + " is of the way not taken; it is now " + aside.filename().string());
  }
}

}  // namespace gputrain::app

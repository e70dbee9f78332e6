#include "newest_checkpoint.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "gputrain/checkpoint/setting_aside.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/monitor/ledger.hpp"
#include "gputrain/resume/record.hpp"

namespace gputrain::app {
namespace {

using checkpoint::CheckpointStore;
using Search = CheckpointStore::Search;

/// By manifest and sizes; -1: there is none, or no looking.
int64_t newest_step(const CheckpointStore& store) {
  try {
    if (const auto newest = checkpoint::newest_listed(store.folder(), store.lineage())) return newest->step;
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
      if (listed.step >= found && !listed.problem.empty())
        search.rejected.push_back({listed.folder, listed.problem, false});
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
std::string quarantine(const CheckpointStore& own, const std::filesystem::path& folder) {
  try {
    return checkpoint::set_aside(folder, "bad").filename().string();
  } catch (const Error&) {
    if (folder.parent_path() == own.folder()) throw;
    return {};
  }
}

/// What rank 0 finds.
std::optional<checkpoint::Checkpoint> newest_here(const CheckpointStore& own, const CheckpointStore* mirror,
                                                  const CheckpointStore::Read& read) {
  Search search = mirror == nullptr ? own.find_newest(read) : search_both(own, *mirror, read);
  if (!search.newest) refuse_to_start_over(own, search);
  for (const auto& rejected : search.rejected) {
    // What cannot be read now may be good later.
    const std::string aside = rejected.is_damaged ? quarantine(own, rejected.folder) : "";
    log::warning("checkpoint skipped: " + rejected.reason + (aside.empty() ? "" : "; it is now " + aside));
  }
  return std::move(search.newest);
}

/// Why a rank cannot read a checkpoint that rank 0 has read.
struct Refusal {
  bool is_damaged = false;
  std::string what, where;

  [[noreturn]] void raise() const {
    if (is_damaged) throw checkpoint::Damage(what, where);
    throw checkpoint::Unreadable(what, where);
  }
};

/// The first rank's that has one. Every rank must call.
std::optional<Refusal> refusal_of_any(comm::Group& control, const std::optional<Refusal>& own) {
  constexpr size_t kBytes = 4096;
  const at::Tensor told = at::zeros({kBytes}, at::kByte);
  if (own) {
    const std::string text = (own->is_damaged ? "d" : "u") + own->what + '\0' + own->where;
    std::memcpy(told.mutable_data_ptr(), text.data(), std::min(text.size(), kBytes - 2));  // ends with two zeros
  }
  const at::Tensor all = control.all_gather(told, "who cannot read the checkpoint");
  for (int rank = 0; rank < control.size(); ++rank) {
    const at::Tensor one = all.select(0, rank);
    const char* const text = static_cast<const char*>(one.const_data_ptr());
    if (text[0] == '\0') continue;
    const std::string what = text + 1;
    return Refusal{text[0] == 'd', "rank " + std::to_string(rank) + " says: " + what, text + what.size() + 2};
  }
  return std::nullopt;
}

std::vector<checkpoint::Listed> list_unless_away(const std::filesystem::path& folder) {
  try {
    return checkpoint::list_checkpoints(folder);
  } catch (const Error&) {
    return {};  // told where one is looked for
  }
}

/// The last checkpoint that lies in `folder`, as where it was copied to without its run; empty: none.
std::filesystem::path last_checkpoint_in(const std::filesystem::path& folder) {
  std::filesystem::path last;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (exists(entry.path() / "manifest.json")) last = std::max(last, entry.path());
  }
  return last;
}

}  // namespace

checkpoint::Lineage lineage_of(const RunFolder& run, const std::optional<std::filesystem::path>& mirror) {
  std::optional<checkpoint::Lineage> lineage = lineage_before(monitor::read_ledger(run.ledger()).lines);
  if (lineage->branches.empty()) lineage.reset();
  std::vector<checkpoint::Listed> listed = list_unless_away(run.checkpoints());
  if (mirror) std::ranges::move(list_unless_away(*mirror), std::back_inserter(listed));
  std::ranges::stable_sort(listed, std::ranges::greater(), &checkpoint::Listed::step);
  for (const auto& one : listed)
    if (one.problem.empty() && (!lineage || one.lineage.descends_from(*lineage))) lineage = one.lineage;
  return lineage.value_or(checkpoint::Lineage{});
}

void refuse_to_start_over(const CheckpointStore& own, const Search& in_vain) {
  if (!in_vain.rejected.empty()) {
    throw Error(ExitCode::checkpoint,
                {.what = "none of the run's checkpoints is good; the newest: " + in_vain.rejected.front().reason,
                 .where = own.folder().string(),
                 .hint = "put a good copy there, or start over: --set checkpoint.resume=never keeps this run aside"});
  }
  if (own.list().empty()) return;
  throw Error(ExitCode::checkpoint,
              {.what = "there are checkpoints, but the run's ledger says that it has left all of them",
               .where = own.folder().string(),
               .hint = "name the one to go on from: --set checkpoint.resume=PATH, or start over: never"});
}

void refuse_if_must(const std::string& resume, const CheckpointStore& own) {
  if (resume != "must") return;
  throw Error(ExitCode::checkpoint, {.what = "checkpoint.resume is must, but there is no good checkpoint",
                                     .where = own.folder().string(),
                                     .hint = "checkpoint.resume: auto starts from scratch when there is none"});
}

void refuse_if_not_begun(const RunFolder& run) {
  const std::string from = unsaved_start_in(monitor::read_ledger(run.ledger()).lines);
  if (from.empty()) return;
  throw Error(ExitCode::checkpoint,
              {.what = "the last start was from " + from + ", and ended before that was saved here",
               .where = run.path.string(),
               .hint = "--set checkpoint.resume=" + from + " starts from there again"});
}

void check_is_checkpoint(const std::filesystem::path& path) {
  if (exists(path / "manifest.json")) return;
  std::string hint = "auto, must, never, or a checkpoint: runs/x/ckpt/step-00000100";
  if (const auto last = last_checkpoint_in(path); !last.empty()) hint = "name the one in it: " + last.string();
  if (exists(path / "ckpt/latest")) hint = (path / "ckpt/latest").string() + " is this run's newest";
  if (exists(path / "latest")) hint = (path / "latest").string() + " is the newest one here";
  throw Error(ExitCode::checkpoint, {.what = exists(path) ? "checkpoint.resume: this is no checkpoint"
                                                          : "checkpoint.resume: there is no such checkpoint",
                                     .where = path.string(),
                                     .hint = hint});
}

checkpoint::Checkpoint read_from(const std::filesystem::path& folder, const CheckpointStore::Read& read) {
  auto checkpoint = checkpoint::Checkpoint::look_into(folder);
  read(checkpoint);
  return checkpoint;
}

/// Rank 0 looks, and every rank reads what it found: ranks that share out a part read files that it does not. What one
/// of them cannot read is no good, and the search goes on.
std::optional<checkpoint::Checkpoint> newest_good(comm::ProcessGroups& groups, const CheckpointStore& own,
                                                  const CheckpointStore* mirror, const CheckpointStore::Read& read) {
  auto& control = groups.control();
  std::map<std::filesystem::path, Refusal> refused;
  const auto read_unless_refused = [&](const checkpoint::Checkpoint& from) {
    if (const auto known = refused.find(from.folder()); known != refused.end()) known->second.raise();
    read(from);
  };
  while (true) {
    std::optional<checkpoint::Checkpoint> found;
    const at::Tensor choice = at::full({3}, -1, at::kLong);  // step, number, and whether it is the mirror's
    groups.on_rank_zero([&] { found = newest_here(own, mirror, read_unless_refused); }, "search for a checkpoint");
    if (found) {
      choice[0].fill_(found->step());
      choice[1].fill_(checkpoint::parse_step_name(found->folder().filename().string()).value().number);
      choice[2].fill_(found->folder().parent_path() == own.folder() ? 0 : 1);
    }
    control.broadcast(choice, 0, "newest good checkpoint");
    const auto agreed = choice[0].item<int64_t>();
    if (agreed < 0) {
      control.barrier("no checkpoint");  // who fails for that must not break off what the others are still told
      return std::nullopt;
    }
    const auto& store = choice[2].item<int64_t>() == 1 ? *mirror : own;
    const auto folder = store.folder() / checkpoint::folder_name(agreed, choice[1].item<int64_t>());
    std::optional<Refusal> refusal;
    try {
      if (!found) found = read_from(folder, read);
    } catch (const checkpoint::Damage& damage) {
      refusal = {.is_damaged = true, .what = damage.parts().what, .where = damage.parts().where};
    } catch (const checkpoint::Unreadable& trouble) {
      refusal = {.is_damaged = false, .what = trouble.parts().what, .where = trouble.parts().where};
    }
    refusal = refusal_of_any(control, refusal);
    if (!refusal) return found;
    refused[folder] = *refusal;
  }
}

}  // namespace gputrain::app

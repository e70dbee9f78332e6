#include "gputrain/resume/resume_point.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/job/run_folder.hpp"

namespace gputrain::app {
namespace {

using checkpoint::Read;
using checkpoint::Search;

bool is_path(const std::string& resume) { return resume != "auto" && resume != "must" && resume != "never"; }

/// Throws if there are checkpoints after all.
void refuse_to_start_over(const Job& job, const Search& in_vain) {
  const auto checkpoints = RunFolder{job.output_dir}.checkpoints();
  if (!in_vain.rejected.empty()) {
    throw Error(ExitCode::checkpoint,
                {.what = "none of the run's checkpoints is good; the newest: " + in_vain.rejected.front().reason,
                 .where = checkpoints.string(),
                 .hint = "put a good copy there, or start over: --new keeps this run aside"});
  }
  for (const auto& [number, folder] : checkpoint::branches_in(checkpoints)) {
    if (checkpoint::finished_in({folder}).empty()) continue;
    throw Error(ExitCode::checkpoint,
                {.what = "there are checkpoints, but none of the branch that the run's ledger names last",
                 .where = checkpoints.string(),
                 .hint = "name the one to go on from: --set checkpoint.resume=PATH, or start over: --new"});
  }
}

/// Takes a damaged checkpoint out of the way and returns its new name; empty if a mirror does not allow that.
std::string quarantine(const std::filesystem::path& folder, bool is_own) {
  try {
    return checkpoint::archive_checkpoint(folder).filename().string();
  } catch (const Error&) {
    if (is_own) throw;
    return {};
  }
}

/// Searches on rank 0.
std::optional<checkpoint::Checkpoint> newest_here(const Job& job, const ResumePoint& point, const Read& read) {
  Search search = checkpoint::find_newest(point.folders, read);
  if (!search.unreadable.empty()) log::warning("the mirror cannot be read: " + search.unreadable);
  if (!search.newest) refuse_to_start_over(job, search);
  for (const auto& rejected : search.rejected) {
    // A checkpoint that cannot be read now may be good later.
    const bool is_own = rejected.folder.parent_path() == point.folders.front();
    const std::string aside = rejected.is_damaged ? quarantine(rejected.folder, is_own) : "";
    log::warning("checkpoint skipped: " + rejected.reason + (aside.empty() ? "" : "; it is now " + aside));
  }
  return std::move(search.newest);
}

/// The reason why a rank cannot read a checkpoint that rank 0 has read.
struct Refusal {
  bool is_damaged = false;
  std::string what, where;
  int rank = 0;

  [[noreturn]] void raise() const {
    if (is_damaged) throw checkpoint::Damage(what, where);
    throw checkpoint::Unreadable(what, where);
  }
};

/// Returns the refusal of the first rank that has one. Every rank must call.
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
    return Refusal{.is_damaged = text[0] == 'd',
                   .what = "rank " + std::to_string(rank) + " says: " + what,
                   .where = text + what.size() + 2,
                   .rank = rank};
  }
  return std::nullopt;
}

bool holds_checkpoints(const std::filesystem::path& mirror) {
  try {
    return !checkpoint::finished_in({mirror}).empty();
  } catch (const Error&) {
    return false;
  }
}

/// Looks, on rank 0, at a checkpoint that it could read and another rank cannot. Returns whether the other ranks can
/// read it now, in the mirror, because their hosts do not share the run folder. Throws Error(checkpoint) if rank 0
/// finds the file as it was written and the mirror is of no use: then the host of that rank is to be repaired, not the
/// checkpoint.
bool look_again(const ResumePoint& point, const std::filesystem::path& folder, Refusal& refusal,
                const std::vector<std::string>& hosts, const CopyNow& copy) {
  const bool lacks_it = !refusal.is_damaged && refusal.where == folder.string();
  if (lacks_it && point.folders.size() > 1 && folder.parent_path() == point.folders.front()) {
    const CopyResult result = copy(folder);
    if (result == CopyResult::made) return true;
    if (result == CopyResult::failed && holds_checkpoints(point.folders[1])) return false;
  }
  try {
    checkpoint::verify_file(folder, std::filesystem::path(refusal.where).filename().string());
  } catch (const checkpoint::Damage&) {
    refusal.is_damaged = true;
    return false;
  } catch (const checkpoint::Unreadable&) {
    refusal.is_damaged = false;
    return false;
  }
  const std::string& host = hosts[static_cast<size_t>(refusal.rank)];
  throw Error(ExitCode::checkpoint,
              {.what = "the newest checkpoint cannot be read on every host. On " + host + ", " + refusal.what +
                       ". Rank 0 on " + hosts.front() + " finds it as it was written",
               .where = refusal.where,
               .hint = "give " + host + " the same files: mount the disk with the run folder there, or copy " +
                       folder.string() + " to it"});
}

/// Returns the last checkpoint that lies in `folder`, for example if it was copied there without its run; empty: none.
std::filesystem::path last_checkpoint_in(const std::filesystem::path& folder) {
  std::filesystem::path last;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (exists(entry.path() / "manifest.json")) last = std::max(last, entry.path());
  }
  return last;
}

checkpoint::Checkpoint read_from(const std::filesystem::path& folder, const Read& read) {
  auto checkpoint = checkpoint::Checkpoint::look_into(folder);
  read(checkpoint);
  return checkpoint;
}

/// Stands for all that a checkpoint holds, by the hashes of its files.
int64_t content_of(const checkpoint::Manifest& manifest) {
  return static_cast<int64_t>(stable_hash(checkpoint::to_json(manifest)));
}

int64_t content_of(const checkpoint::Checkpoint& checkpoint) { return content_of(checkpoint.manifest()); }

/// Returns the folder of rank 0's checkpoint, or of its copy in the mirror if this host does not share that folder.
std::filesystem::path place_here(const ResumePoint& point, const std::filesystem::path& folder, int64_t step,
                                 int64_t content) {
  const auto is_it = [&](const std::filesystem::path& place) {
    try {
      return content_of(checkpoint::look_at_files(place)) == content;
    } catch (const Error&) {
      return false;
    }
  };
  if (is_it(folder) || point.folders.size() < 2) return folder;
  try {
    for (const auto& [its_step, copy] : checkpoint::finished_in({point.folders[1]}))
      if (its_step == step && is_it(copy)) return copy;
  } catch (const Error&) {  // reading the folder says what is wrong there
  }
  return folder;
}

/// Hosts with disks of their own may have checkpoints of other runs under the same name.
void check_is_that_of_rank_zero(const checkpoint::Checkpoint& here, int64_t content_there) {
  if (content_of(here) != content_there)
    throw checkpoint::Unreadable("is another checkpoint than that of rank 0", here.folder());
}

std::vector<std::filesystem::path> folders_of(const Job& job, int64_t branch) {
  std::vector<std::filesystem::path> folders{
      checkpoint::branch_folder(RunFolder{job.output_dir}.checkpoints(), branch)};
  if (const auto& mirror = job.spec().checkpoint.mirror) folders.push_back(checkpoint::branch_folder(*mirror, branch));
  return folders;
}

}  // namespace

ResumePoint resume_point_of(const Job& job) {
  const auto& spec = job.spec().checkpoint;
  const RunBranch branch = branch_of(RunFolder{job.output_dir}, spec.mirror);
  ResumePoint point{.branch = branch.number, .folders = folders_of(job, branch.number), .path = {}};
  if (!is_path(spec.resume)) {
    if (spec.resume != "never" && checkpoint::finished_in(point.folders).empty()) point.path = branch.from;
    return point;
  }
  std::error_code unknown;
  const auto newest = checkpoint::newest_listed(point.folders);
  if (newest && std::filesystem::equivalent(newest->folder, spec.resume, unknown)) return point;
  const int64_t number = branch.number + (checkpoint::finished_in(point.folders).empty() ? 0 : 1);
  return {.branch = number, .folders = folders_of(job, number), .path = spec.resume};
}

ResumePoint agreed_resume_point(const Job& job, comm::ProcessGroups& groups) {
  ResumePoint point;
  groups.on_rank_zero([&] { point = resume_point_of(job); }, "search for a checkpoint");
  at::Tensor numbers = at::zeros({2}, at::kLong);
  numbers[0].fill_(point.branch);
  numbers[1].fill_(static_cast<int64_t>(point.path.size()));
  groups.control().broadcast(numbers, 0, "branch of the run");
  at::Tensor path = at::zeros({numbers[1].item<int64_t>() + 1}, at::kByte);
  std::memcpy(path.mutable_data_ptr(), point.path.data(), point.path.size());
  groups.control().broadcast(path, 0, "checkpoint to begin with");
  const auto branch = numbers[0].item<int64_t>();
  return {
      .branch = branch, .folders = folders_of(job, branch), .path = static_cast<const char*>(path.const_data_ptr())};
}

std::optional<checkpoint::Checkpoint> look_for_checkpoint(const Job& job, const Read& read) {
  const ResumePoint point = resume_point_of(job);
  if (!point.path.empty()) return read_given(point.path, read);
  Search search = checkpoint::find_newest(point.folders, read);
  if (!search.newest) {
    refuse_to_start_over(job, search);
    refuse_if_must(job);
  }
  return std::move(search.newest);
}

void refuse_if_must(const Job& job) {
  if (job.spec().checkpoint.resume != "must") return;
  throw Error(ExitCode::checkpoint, {.what = "checkpoint.resume is must, but there is no good checkpoint",
                                     .where = RunFolder{job.output_dir}.checkpoints().string(),
                                     .hint = "checkpoint.resume: auto starts from scratch when there is none"});
}

checkpoint::Checkpoint read_given(const std::filesystem::path& path, const Read& read) {
  if (exists(path / "manifest.json")) return read_from(path, read);
  std::string hint = "auto, must, never, or a checkpoint: runs/x/ckpt/step-00000100";
  if (const auto last = last_checkpoint_in(path); !last.empty()) hint = "name the one in it: " + last.string();
  if (exists(path / "ckpt/latest")) hint = (path / "ckpt/latest").string() + " is this run's newest";
  if (exists(path / "latest")) hint = (path / "latest").string() + " is the newest one here";
  throw Error(ExitCode::checkpoint, {.what = exists(path) ? "checkpoint.resume: this is no checkpoint"
                                                          : "checkpoint.resume: there is no such checkpoint",
                                     .where = path.string(),
                                     .hint = hint});
}

checkpoint::Checkpoint read_given(const std::filesystem::path& path, comm::ProcessGroups& groups, const Read& read) {
  try {
    checkpoint::Checkpoint found = read_given(path, read);
    check_is_that_of_rank_zero(found, groups.from_rank_zero(content_of(found), "content of the checkpoint"));
    return found;
  } catch (const Error& error) {
    const auto rank = static_cast<size_t>(groups.rank());
    if (rank == 0 || error.code() == ExitCode::restart) throw;  // the latter is another rank's failure
    Error::Parts parts = error.parts();
    parts.what = "rank " + std::to_string(rank) + " on " + groups.hosts()[rank] + ": " + parts.what;
    throw Error(error.code(), std::move(parts));
  }
}

/// Rank 0 searches, and every rank reads what it found: ranks that share out a part read files that rank 0 does not. If
/// one of them cannot read a checkpoint and rank 0 cannot read it either, the search goes on. Ranks that do not share
/// the run folder read the copy in the mirror, which is made if it is missing; if it cannot be made, the search goes
/// on.
std::optional<checkpoint::Checkpoint> newest_good(const Job& job, comm::ProcessGroups& groups, const ResumePoint& point,
                                                  const Read& read, const CopyNow& copy) {
  auto& control = groups.control();
  std::map<std::filesystem::path, Refusal> refused;
  const auto read_unless_refused = [&](const checkpoint::Checkpoint& from) {
    if (const auto known = refused.find(from.folder()); known != refused.end()) known->second.raise();
    read(from);
  };
  while (true) {
    std::optional<checkpoint::Checkpoint> found;
    const at::Tensor choice = at::full({3}, -1, at::kLong);  // number of the folder, step, number
    groups.on_rank_zero([&] { found = newest_here(job, point, read_unless_refused); }, "search for a checkpoint");
    if (found) {
      choice[0].fill_(found->folder().parent_path() == point.folders.front() ? 0 : 1);
      choice[1].fill_(found->step());
      choice[2].fill_(checkpoint::parse_step_name(found->folder().filename().string()).value().number);
    }
    control.broadcast(choice, 0, "newest good checkpoint");
    const int64_t* const agreed = choice.const_data_ptr<int64_t>();
    if (agreed[0] < 0) {
      control.barrier("no checkpoint");  // a rank that fails for that must not abort the broadcast to the others
      return std::nullopt;
    }
    const auto folder = point.folders[static_cast<size_t>(agreed[0])] / checkpoint::folder_name(agreed[1], agreed[2]);
    const int64_t content = groups.from_rank_zero(found ? content_of(*found) : 0, "content of the checkpoint");
    std::optional<Refusal> refusal;
    try {
      if (!found) {
        found = read_from(place_here(point, folder, agreed[1], content), [&](const checkpoint::Checkpoint& from) {
          check_is_that_of_rank_zero(from, content);
          read(from);
        });
      }
    } catch (const checkpoint::Damage& damage) {
      refusal = {.is_damaged = true, .what = damage.parts().what, .where = damage.parts().where};
    } catch (const checkpoint::Unreadable& trouble) {
      refusal = {.is_damaged = false, .what = trouble.parts().what, .where = trouble.parts().where};
    }
    refusal = refusal_of_any(control, refusal);
    if (!refusal) return found;
    bool is_readable = false;
    groups.on_rank_zero([&] { is_readable = look_again(point, folder, *refusal, groups.hosts(), copy); },
                        "second look at the checkpoint");
    if (!is_readable) refused[folder] = *refusal;
  }
}

}  // namespace gputrain::app

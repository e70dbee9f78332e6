#include "shared_folder.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/resume/resume_point.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPatience{3};  // some network file systems show new files late
constexpr std::chrono::milliseconds kBetweenLooks{50};

/// A file that rank 0 writes into the place of the run folder, and removes when the others have looked for it.
struct Mark {
  std::string name;       // empty: it could not be written; who takes the run folder says why
  int64_t above_run = 0;  // how many names of the run folder's path to leave out
};

fs::path path_of(const Mark& mark, fs::path run) {
  for (int64_t i = 0; i < mark.above_run; ++i) run = run.parent_path();
  return run / mark.name;
}

Mark write_mark(const fs::path& run) {
  Mark mark;
  std::error_code unknown;
  for (fs::path there = run; !fs::exists(there, unknown) && there.has_relative_path(); there = there.parent_path())
    ++mark.above_run;
  std::random_device random;
  mark.name = fmt::format(".gputrain-{:08x}{:08x}", random(), random());
  if (!std::ofstream(path_of(mark, run))) mark.name.clear();
  return mark;
}

bool appears(const fs::path& file) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::error_code unknown;
  while (!fs::exists(file, unknown)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

/// Finds the newest step of the checkpoints that this rank would go on from; -1: there is none.
int64_t newest_step(const Job& job) {
  if (job.spec().checkpoint.resume == "never") return -1;
  try {
    const ResumePoint point = resume_point_of(job);
    if (!point.path.empty()) return -1;
    const auto found = checkpoint::finished_in(point.folders);
    return found.empty() ? -1 : found.front().first;
  } catch (const Error&) {  // the search for a checkpoint tells
    return -1;
  }
}

/// Returns whether the rank writes parts of checkpoints.
bool writes(int rank, const train::ParallelSpec& spec, const comm::Mesh& mesh) {
  const int writers = mesh.tensor * (spec.shard == "none" ? 1 : mesh.shards());
  return mesh.place_in_stage_of(rank) < writers;
}

/// Returns "rank 1 on node1, ranks 2 to 3 on node2".
std::string places(const std::vector<int>& ranks, const comm::ProcessGroups& groups) {
  constexpr size_t kMostNamed = 8;
  std::map<std::string, std::vector<int>> by_host;
  for (const int rank : ranks) by_host[groups.hosts()[static_cast<size_t>(rank)]].push_back(rank);
  std::string text;
  size_t named = 0;
  for (const auto& [host, here] : by_host) {
    if (++named > kMostNamed) return text + fmt::format(" and {} more hosts", by_host.size() - kMostNamed);
    text += (text.empty() ? "" : ", ") + (here.size() == 1 ? fmt::format("rank {}", here.front())
                                                           : fmt::format("ranks {} to {}", here.front(), here.back()));
    text += " on " + host;
  }
  return text;
}

/// The findings of each rank.
struct Sight {
  std::vector<int> blind;            // ranks that do not see the mark
  std::vector<int64_t> newest_step;  // index: rank; only for rank 0 and the blind ones
};

Sight look(const Job& job, comm::ProcessGroups& groups, const fs::path& run, const Mark& mark) {
  const bool sees = groups.rank() == 0 || appears(path_of(mark, run));
  const at::Tensor own = at::full({2}, static_cast<int64_t>(sees), at::kLong);
  if (groups.rank() == 0 || !sees) own[1].fill_(newest_step(job));
  const at::Tensor all = groups.control().all_gather(own, "who sees the run folder");
  Sight sight;
  for (int rank = 0; rank < groups.world_size(); ++rank) {
    if (all[rank][0].item<int64_t>() == 0) sight.blind.push_back(rank);
    sight.newest_step.push_back(all[rank][1].item<int64_t>());
  }
  return sight;
}

void refuse_lost_progress(const Sight& sight, const comm::ProcessGroups& groups, const fs::path& run) {
  for (const int rank : sight.blind) {
    const int64_t step = sight.newest_step[static_cast<size_t>(rank)];
    if (step <= sight.newest_step.front()) continue;
    throw Error(
        ExitCode::checkpoint,
        {.what = fmt::format("the hosts do not share the run folder, and the newest checkpoint is not on that of "
                             "rank 0, {}: {} has step {}",
                             groups.hosts().front(), places({rank}, groups), step),
         .where = run.string(),
         .hint = "mount one disk there on every host with that host's files, or begin a new run: another "
                 "--output-dir"});
  }
}

void judge(const Job& job, comm::ProcessGroups& groups, const fs::path& run, const Sight& sight) {
  const auto& spec = job.spec().parallel;
  const bool needs_it = std::ranges::any_of(sight.blind, [&](int rank) { return writes(rank, spec, groups.mesh()); });
  const std::string what =
      fmt::format("the hosts do not share the run folder: {} cannot see what rank 0 on {} writes there",
                  places(sight.blind, groups), groups.hosts().front());
  if (needs_it) {
    const std::string other =
        groups.mesh().has_parts_of_model() ? "" : "; with parallel.shard: none rank 0 saves alone";
    throw Error(ExitCode::environment,
                {.what = what + ", and every checkpoint has parts from all of them",
                 .where = run.string(),
                 .hint = "mount one disk there on every host, or give another --output-dir that all see" + other});
  }
  refuse_lost_progress(sight, groups, run);
  log::warning(
      fmt::format("{}, {}. Rank 0 saves alone, so the run trains; to go on from a checkpoint all ranks must "
                  "read it: mount one disk there, or copy the run folder to every host before a restart",
                  what, run.string()));
}

}  // namespace

void check_run_folder_is_shared(const Job& job, comm::ProcessGroups& groups) {
  if (groups.alone()) return;
  std::error_code unknown;
  const fs::path run = fs::absolute(job.output_dir, unknown);
  Mark mark;
  if (groups.rank() == 0) mark = write_mark(run);
  mark.name = groups.from_rank_zero(mark.name, "mark in the run folder");
  mark.above_run = groups.from_rank_zero(mark.above_run, "place of the mark");
  if (mark.name.empty()) return;
  const Sight sight = look(job, groups, run, mark);
  if (groups.rank() == 0) fs::remove(path_of(mark, run), unknown);
  if (sight.blind.empty()) return;
  groups.on_rank_zero([&] { judge(job, groups, run, sight); }, "run folder of all hosts");
}

}  // namespace gputrain::app

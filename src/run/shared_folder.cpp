#include "shared_folder.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/job/shared_mark.hpp"
#include "gputrain/resume/resume_point.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// The data and weights that the job names, by their keys; of a pattern, the folder before its first sign.
std::vector<std::pair<std::string, fs::path>> inputs_of(const JobSpec& spec) {
  std::vector<std::pair<std::string, fs::path>> inputs;
  const auto add = [&](const char* key, const std::string& path) {
    const size_t sign = path.find_first_of("*?[{");
    if (!path.empty())
      inputs.emplace_back(key,
                          sign == std::string::npos ? fs::path(path) : fs::path(path.substr(0, sign)).parent_path());
  };
  add("data.train.path", spec.data.train.path);
  if (spec.data.val) add("data.val.path", spec.data.val->path.value_or(""));
  if (spec.data.test) add("data.test.path", spec.data.test->path.value_or(""));
  add("model.pretrained", spec.model.pretrained ? hub::pretrained_path_or_name(*spec.model.pretrained).string() : "");
  return inputs;
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

/// Where rank 0 has left its marks; empty: there is none to look for.
struct Marks {
  std::string run, mirror;
};

/// The ranks that see less than rank 0.
struct Sight {
  std::vector<int> blind;                  // ranks that do not see the run folder
  std::vector<int> no_mirror;              // ranks that do not see the mirror
  std::vector<std::vector<int>> no_input;  // index: input
  std::vector<int64_t> newest_step;        // index: rank; only for rank 0 and the blind ones
};

Sight look(const Job& job, comm::ProcessGroups& groups, const Marks& marks) {
  const bool looks = groups.rank() != 0;
  const auto inputs = inputs_of(job.spec());
  const bool sees_run = !looks || marks.run.empty() || shows_mark(job.output_dir, marks.run);
  const bool sees_mirror = !looks || marks.mirror.empty() || shows_mark(*job.spec().checkpoint.mirror, marks.mirror);
  std::vector<int64_t> own{sees_run, sees_mirror, looks && sees_run ? 0 : newest_step(job)};
  std::error_code unknown;
  for (const auto& [key, path] : inputs) own.push_back(static_cast<int64_t>(fs::exists(path, unknown)));
  const at::Tensor all = groups.control().all_gather(at::tensor(own, at::kLong), "who sees the folders");
  const auto told = [&](int rank, size_t number) { return all[rank][static_cast<int64_t>(number)].item<int64_t>(); };
  Sight sight;
  sight.no_input.resize(inputs.size());
  for (int rank = 0; rank < groups.world_size(); ++rank) {
    if (told(rank, 0) == 0) sight.blind.push_back(rank);
    if (told(rank, 1) == 0) sight.no_mirror.push_back(rank);
    sight.newest_step.push_back(told(rank, 2));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (told(0, 3 + i) != told(rank, 3 + i)) sight.no_input[i].push_back(rank);
    }
  }
  return sight;
}

std::string do_not_see(const std::vector<int>& ranks, const comm::ProcessGroups& groups) {
  return places(ranks, groups) + (ranks.size() == 1 ? " does not see " : " do not see ");
}

void refuse_lost_progress(const Sight& sight, const comm::ProcessGroups& groups, const std::string& run) {
  for (const int rank : sight.blind) {
    const int64_t step = sight.newest_step[static_cast<size_t>(rank)];
    if (step <= sight.newest_step.front()) continue;
    throw Error(
        ExitCode::checkpoint,
        {.what = fmt::format("the hosts do not share the run folder, and the newest checkpoint is not on that of "
                             "rank 0, {}: {} has step {}",
                             groups.hosts().front(), places({rank}, groups), step),
         .where = run,
         .hint = "mount one disk there on every host with that host's files, or begin a new run: another "
                 "--output-dir"});
  }
}

void judge_run_folder(const Job& job, comm::ProcessGroups& groups, const Sight& sight) {
  if (sight.blind.empty()) return;
  const auto& spec = job.spec().parallel;
  std::error_code unknown;
  const std::string run = fs::absolute(job.output_dir, unknown).string();
  const std::string what = do_not_see(sight.blind, groups) + "the run folder of rank 0 on " + groups.hosts().front() +
                           ": it is not on a shared disk";
  if (std::ranges::any_of(sight.blind, [&](int rank) { return writes(rank, spec, groups.mesh()); })) {
    const std::string other =
        groups.mesh().has_parts_of_model() ? "" : "; with parallel.shard: none rank 0 saves alone";
    throw Error(
        ExitCode::usage,
        {.what = what + ", and every checkpoint has parts from all hosts",
         .where = run,
         .hint = "give a folder that all hosts see: --output-dir; or mount one disk there on every host" + other});
  }
  refuse_lost_progress(sight, groups, run);
  if (job.spec().checkpoint.mirror && sight.no_mirror.empty()) {
    log::info(run + ": " + what + ". Rank 0 saves alone, and to go on the others read checkpoint.mirror");
    return;
  }
  log::warning(run + ": " + what +
               ". Rank 0 saves alone, so the run trains; to go on from a checkpoint all ranks must read it: mount one "
               "disk there, set checkpoint.mirror to a folder that all hosts see, or copy the run folder to every host "
               "before a restart");
}

void judge_mirror(const Job& job, const comm::ProcessGroups& groups, const Sight& sight) {
  if (sight.no_mirror.empty()) return;
  log::warning("checkpoint.mirror " + *job.spec().checkpoint.mirror + ": " + do_not_see(sight.no_mirror, groups) +
               "what rank 0 on " + groups.hosts().front() +
               " writes there: the run could not go on from it. Mount one disk there on every host");
}

void judge_inputs(const Job& job, comm::ProcessGroups& groups, const Sight& sight) {
  const auto inputs = inputs_of(job.spec());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& [key, path] = inputs[i];
    const auto& others = sight.no_input[i];
    if (others.empty()) continue;
    std::error_code unknown;
    const bool is_here = fs::exists(path, unknown);
    const std::vector<int> first{0};
    throw Error(ExitCode::data,
                {.what = do_not_see(is_here ? others : first, groups) + key + ", and " +
                         places(is_here ? first : others, groups) + (is_here || others.size() == 1 ? " does" : " do"),
                 .where = path.string(),
                 .hint = "the same path on every host: a disk that all share, or a copy on each"});
  }
}

}  // namespace

void check_what_hosts_share(const Job& job, RankContext& context) {
  auto& groups = context.groups;
  if (groups.alone()) return;
  const bool is_one_host = context.launch.rendezvous.local_world_size == groups.world_size();
  if (groups.from_rank_zero(static_cast<int64_t>(is_one_host), "whether there is one host") != 0) return;
  const auto& mirror = job.spec().checkpoint.mirror;
  SharedMark of_run, of_mirror;
  if (groups.rank() == 0) {
    of_run = SharedMark(job.output_dir);
    if (mirror) of_mirror = SharedMark(*mirror);
  }
  Marks marks;
  marks.run = groups.from_rank_zero(of_run.place(), "mark in the run folder");
  if (mirror) marks.mirror = groups.from_rank_zero(of_mirror.place(), "mark in the mirror");
  const Sight sight = look(job, groups, marks);
  of_run = {};
  of_mirror = {};
  groups.on_rank_zero(
      [&] {
        judge_run_folder(job, groups, sight);
        judge_mirror(job, groups, sight);
        judge_inputs(job, groups, sight);
      },
      "what the hosts share");
}

namespace {

/// What tells a data set from another one.
struct DataFactsOfRank {
  std::string samples, names, content;  // empty: not known

  bool operator==(const DataFactsOfRank&) const = default;
};

DataFactsOfRank facts_of_rank(const data::Dataset* dataset, bool reads) {
  if (dataset == nullptr) return {};
  std::string names;
  for (const auto& name : data::target_names(*dataset)) names += name + '\0';
  return {.samples = counted(dataset->size(), "sample"),
          .names = std::to_string(stable_hash(names)),
          .content = reads ? data::content_digits(*dataset) : ""};
}

/// Compares the data of a rank with that of rank 0. Throws if it has other places; returns whether it has other
/// content.
bool has_other_content(const std::string& key, const DataFactsOfRank& first, const DataFactsOfRank& other,
                       const std::string& here, const std::string& there) {
  if (first.samples == other.samples && first.names == other.names) {
    return !first.content.empty() && !other.content.empty() && first.content != other.content;
  }
  const std::string what = first.samples == other.samples
                               ? "other classes or tokens for " + here + " than for " + there
                               : other.samples + " for " + here + ", " + first.samples + " for " + there;
  throw Error(ExitCode::data, {.what = "not the same data on every host: " + what,
                               .where = key,
                               .hint = "the same files on every host: a disk that all share, or a copy on each"});
}

}  // namespace

void check_data_is_the_same(const JobDatasets& datasets, RankContext& context) {
  auto& groups = context.groups;
  if (groups.alone()) return;
  const bool is_first_of_host = context.launch.rendezvous.local_rank == 0;
  nlohmann::json own;
  for (const auto* dataset : {datasets.train.get(), datasets.val.get(), datasets.test.get()}) {
    const DataFactsOfRank facts = facts_of_rank(dataset, is_first_of_host);
    own.push_back({facts.samples, facts.names, facts.content});
  }
  const auto all = groups.from_each_rank(own.dump(), "data of each rank");
  const auto judge = [&] {
    const auto facts = [&](size_t rank, size_t number) {
      const auto told = nlohmann::json::parse(all[rank]).at(number);
      return DataFactsOfRank{.samples = told.at(0), .names = told.at(1), .content = told.at(2)};
    };
    std::string warning;
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all.front()) continue;
      const std::string here = places({static_cast<int>(rank)}, groups), there = places({0}, groups);
      size_t number = 0;
      for (const char* key : {"data.train", "data.val", "data.test"}) {
        const bool is_other = has_other_content(key, facts(0, number), facts(rank, number), here, there);
        if (is_other && warning.empty())
          warning = std::string(key) + " has other content for " + here + " than for " + there +
                    ": training counts on the same samples on every host";
        ++number;
      }
    }
    if (!warning.empty()) log::warning(warning);
  };
  groups.on_rank_zero(judge, "whether the data is the same");
}

}  // namespace gputrain::app

#include "gputrain/job/run_folder.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <ranges>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/monitor/ledger.hpp"

namespace gputrain::app {
namespace {

/// Returns the folder itself if the path is a link to it, for example on a larger disk: it is moved, and not the link.
std::filesystem::path place_of(const std::filesystem::path& run) {
  std::error_code unknown;
  return is_symlink(run, unknown) ? std::filesystem::canonical(run) : run;
}

std::filesystem::path earlier_run(const std::filesystem::path& place, int number) {
  return place.string() + "." + std::to_string(number);
}

/// Creates a folder and its missing parents, and syncs each parent: names must be as durable as checkpoints.
void create_durably(const std::filesystem::path& folder, std::error_code& failure) {
  if (std::filesystem::is_directory(folder, failure)) return;
  const auto parent = folder.has_parent_path() ? folder.parent_path() : std::filesystem::path(".");
  create_durably(parent, failure);
  if (!failure && std::filesystem::create_directory(folder, failure)) sync_folder(parent, ExitCode::environment);
}

[[noreturn]] void refuse(const std::filesystem::path& folder, const std::error_code& failure) {
  throw Error(ExitCode::environment, {.what = "cannot use the run folder: " + failure.message(),
                                      .where = folder.string(),
                                      .hint = "choose another with --output-dir"});
}

/// Returns why the path cannot be written, by the kernel, which also knows read-only file systems. Writes nothing.
std::error_code obstacle_to_writing(const std::filesystem::path& path) {
  std::error_code unknown;
  const bool is_folder = std::filesystem::is_directory(path, unknown);
  if (::faccessat(AT_FDCWD, path.c_str(), is_folder ? W_OK | X_OK : W_OK, AT_EACCESS) == 0) return {};
  return {errno, std::generic_category()};
}

bool has_earlier_run(const RunFolder& folder) {
  std::error_code unknown;
  const bool has_checkpoints = std::filesystem::is_directory(folder.checkpoints(), unknown) &&
                               !std::filesystem::is_empty(folder.checkpoints(), unknown);
  return has_checkpoints || std::filesystem::exists(folder.resolved(), unknown);
}

bool holds_checkpoints(const std::filesystem::path& mirror) {
  try {
    return !checkpoint::finished_in({mirror}).empty();
  } catch (const Error&) {
    return false;  // the mirror may be absent
  }
}

/// Returns the branch of a run that starts over. A mirror that is absent now may have copies of the earlier run's
/// checkpoints, which must be of another branch.
int64_t branch_to_start_over(const RunFolder& folder, const std::optional<std::string>& mirror) {
  const int64_t earlier = branch_of(folder, mirror).number;
  const auto ledger = monitor::read_ledger(folder.ledger()).lines;
  const bool has_copies =
      (mirror && holds_checkpoints(*mirror)) || std::ranges::any_of(ledger, [](const nlohmann::json& line) {
        return json_value(line, "kind", "").starts_with("mirror");
      });
  return earlier > 1 || has_copies ? earlier + 1 : 1;
}

/// Refuses, for example, a folder of downloaded weights that a run would overwrite.
void refuse_files_of_others(const RunFolder& folder) {
  std::error_code unknown;
  for (const auto& mark : {folder.resolved(), folder.ledger(), folder.checkpoints()})
    if (std::filesystem::exists(mark, unknown)) return;
  for (const auto& file :
       {folder.weights(), folder.model_config(), folder.signature(), folder.metrics(), folder.summary()}) {
    if (!std::filesystem::exists(file, unknown)) continue;
    throw Error(ExitCode::usage, {.what = "this is not a run folder, and a run would overwrite this file",
                                  .where = file.string(),
                                  .hint = "another --output-dir, a new or empty folder"});
  }
}

}  // namespace

std::filesystem::path RunFolder::log(int rank) const {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "rank_%04d.log", rank);
  return path / "logs" / name.data();
}

std::filesystem::path RunFolder::kernels(int rank) const { return path / "kernels" / ("rank_" + std::to_string(rank)); }

RunBranch branch_of(const RunFolder& run, const std::optional<std::string>& mirror) {
  RunBranch branch;
  for (const auto& line : monitor::read_ledger(run.ledger()).lines) {
    const auto number = line.find("branch"), from = line.find("from");
    if (number == line.end() || !number->is_number_integer()) continue;
    branch = {.number = number->get<int64_t>(),
              .from = from != line.end() && from->is_string() ? from->get<std::string>() : ""};
  }
  std::vector<std::filesystem::path> folders{run.checkpoints()};
  if (mirror) folders.emplace_back(*mirror);
  for (const auto& folder : folders) {
    try {
      if (const int64_t newest = checkpoint::newest_branch_in(folder); newest > branch.number)
        branch = {.number = newest, .from = {}};
    } catch (const Error&) {  // the search for a checkpoint reports it
    }
  }
  return branch;
}

bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder) {
  std::error_code unknown;
  const auto outer = std::filesystem::weakly_canonical(folder, unknown);
  const auto inner = std::filesystem::weakly_canonical(path, unknown);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

void check_run_folder(const std::filesystem::path& path) {
  std::error_code failure;
  const auto status = std::filesystem::status(RunFolder{path}.checkpoints(), failure);
  const bool is_below_a_file = failure == std::errc::not_a_directory;
  if (is_below_a_file || status.type() == std::filesystem::file_type::none) refuse(path, failure);
  refuse_files_of_others({path});
}

void check_mirror(const std::filesystem::path& mirror, const std::filesystem::path& run) {
  if (is_within(mirror, run)) {
    throw Error(ExitCode::usage, {.what = "checkpoint.mirror is inside the run folder, so both would be lost together",
                                  .where = mirror.string(),
                                  .hint = "a folder on another disk"});
  }
  std::error_code unknown;
  const auto place = std::filesystem::weakly_canonical(mirror, unknown);
  for (const RunFolder& other : {RunFolder{place}, RunFolder{place.parent_path()}}) {
    if (!std::filesystem::exists(other.ledger(), unknown)) continue;
    throw Error(ExitCode::usage, {.what = "checkpoint.mirror is the folder of another run",
                                  .where = mirror.string(),
                                  .hint = "a folder for each run: checkpoint.mirror: /mnt/backup/${name}"});
  }
}

std::filesystem::path existing_part_of(std::filesystem::path path) {
  std::error_code unknown;
  path = std::filesystem::absolute(path, unknown);
  while (!std::filesystem::exists(path, unknown) && path.has_relative_path()) path = path.parent_path();
  return path;
}

void check_may_take_run_folder(const std::filesystem::path& path, bool fresh) {
  const RunFolder folder{path};
  check_run_folder(path);
  std::error_code unknown;
  if (fresh && has_earlier_run(folder)) {
    const auto there = std::filesystem::absolute(path / "", unknown).parent_path();
    if (const auto failure = obstacle_to_writing(there.parent_path())) refuse(path, failure);
  }
  for (const auto& needed : {path / "logs", folder.checkpoints()}) {
    const auto existing = existing_part_of(needed);
    if (!std::filesystem::is_directory(existing, unknown))
      refuse(path, std::make_error_code(std::errc::not_a_directory));
    if (const auto failure = obstacle_to_writing(existing)) refuse(path, failure);
  }
  for (const auto& written : {path, path / "lock"}) {
    if (!std::filesystem::exists(written, unknown)) continue;
    if (const auto failure = obstacle_to_writing(written)) refuse(path, failure);
  }
}

std::filesystem::path path_for_earlier_run(const std::filesystem::path& run) {
  const auto place = place_of(run);
  for (int number = 1;; ++number)
    if (const auto free = earlier_run(place, number); !std::filesystem::exists(free)) return free;
}

std::vector<std::filesystem::path> earlier_runs_of(const std::filesystem::path& run) {
  const auto place = std::filesystem::absolute(place_of(run));
  std::map<int, std::filesystem::path> runs;
  std::error_code unreadable;
  for (const auto& beside : std::filesystem::directory_iterator(place.parent_path(), unreadable)) {
    const std::string name = beside.path().filename().string(), begin = place.filename().string() + ".";
    const int number = name.starts_with(begin) ? std::atoi(name.c_str() + begin.size()) : 0;
    if (number > 0 && beside.path() == earlier_run(place, number) && exists(RunFolder{beside.path()}.checkpoints()))
      runs[number] = beside.path();
  }
  const auto paths = std::views::values(runs);
  return {paths.begin(), paths.end()};
}

TakenRunFolder take_run_folder(const std::filesystem::path& path, bool fresh,
                               const std::optional<std::string>& mirror) {
  const RunFolder folder{path};
  check_run_folder(path);
  std::error_code failure;
  const int64_t branch = fresh ? branch_to_start_over(folder, mirror) : 1;
  if (fresh && has_earlier_run(folder)) {
    const RunLock of_earlier_run(folder.path);
    const auto place = place_of(folder.path), aside = path_for_earlier_run(folder.path);
    std::filesystem::rename(place, aside, failure);
    if (!failure) log::warning("the earlier run in " + folder.path.string() + " is now " + aside.string());
    if (!failure) create_durably(place, failure);
  }
  if (!failure) create_durably(folder.path / "logs", failure);
  if (!failure) create_durably(folder.checkpoints(), failure);
  if (failure) refuse(folder.path, failure);
  TakenRunFolder taken{folder, RunLock(folder.path)};
  if (fresh) monitor::Ledger(folder.ledger()).append("started_over", {{"branch", branch}});
  return taken;
}

}  // namespace gputrain::app

#include "gputrain/inspect/ckpt_folder.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include <fmt/format.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";

/// Sums up bytes. A file that vanishes while we look counts for nothing: a run may be writing here.
uint64_t bytes_below(const fs::path& folder) {
  uint64_t sum = 0;
  std::error_code ended;
  for (fs::recursive_directory_iterator at(folder, ended), end; !ended && at != end; at.increment(ended)) {
    std::error_code gone;
    const uint64_t bytes = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) sum += bytes;
  }
  return sum;
}

std::optional<int64_t> time_written(const fs::path& folder) {
  struct stat status {};
  if (::stat((folder / kManifest).c_str(), &status) != 0 && ::stat(folder.c_str(), &status) != 0) return std::nullopt;
  return status.st_mtime;
}

CkptEntry entry_of(const checkpoint::Listed& listed, const fs::path& root, CkptEntry::Kind kind) {
  return {.folder = listed.folder,
          .root = root,
          .kind = kind,
          .step = listed.step,
          .bytes = bytes_below(listed.folder),
          .written = time_written(listed.folder),
          .score = listed.score,
          .problem = told_within(listed.folder, listed.problem)};
}

bool holds_checkpoints(const fs::path& folder) {
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
    if (checkpoint::parse_step_name(entry.path().filename().string())) return true;
  }
  return checkpoint::branches_in(folder).size() > 1;
}

/// Adds the folders of a branch that were set aside or are left over.
void add_remains(std::vector<CkptEntry>& entries, const fs::path& branch, const fs::path& root) {
  std::error_code unreadable;
  for (const auto& item : fs::directory_iterator(branch, unreadable)) {
    const auto parsed = checkpoint::parse_step_name(item.path().filename().string());
    if (!parsed || parsed->suffix.empty() || item.is_symlink()) continue;
    const bool is_partial = parsed->suffix.ends_with(".partial");
    entries.push_back({.folder = item.path(),
                       .root = root,
                       .kind = is_partial ? CkptEntry::Kind::left_over : CkptEntry::Kind::set_aside,
                       .step = parsed->step,
                       .bytes = bytes_below(item.path()),
                       .written = time_written(item.path())});
  }
}

std::string kind_name(CkptEntry::Kind kind) {
  return kind == CkptEntry::Kind::checkpoint  ? "checkpoint"
         : kind == CkptEntry::Kind::set_aside ? "set_aside"
                                              : "left_over";
}

}  // namespace

std::string told_within(const fs::path& folder, const std::string& error) {
  std::string text = error.substr(0, error.find('\n'));
  const std::string path = folder.string();
  if (text.starts_with(path + "/")) return text.substr(path.size() + 1);
  if (text.starts_with(path + ": ")) return text.substr(path.size() + 2);
  return text;
}

std::vector<CkptEntry> entries_of(const fs::path& folder) {
  std::vector<CkptEntry> entries;
  const int64_t newest = checkpoint::newest_branch_in(folder);
  for (const auto& [number, branch] : checkpoint::branches_in(folder)) {
    const auto kind = number == newest ? CkptEntry::Kind::checkpoint : CkptEntry::Kind::set_aside;
    for (const auto& listed : checkpoint::list_checkpoints(branch)) entries.push_back(entry_of(listed, folder, kind));
    add_remains(entries, branch, folder);
  }
  std::sort(entries.begin(), entries.end(), [](const CkptEntry& a, const CkptEntry& b) {
    return a.step != b.step ? a.step < b.step : a.folder < b.folder;
  });
  return entries;
}

bool is_one_checkpoint(const fs::path& named) {
  if (!fs::is_directory(named) || fs::is_directory(named / "ckpt")) return false;
  if (fs::exists(named / kManifest)) return true;
  std::error_code error;
  const auto path = fs::canonical(named, error);
  return !error && checkpoint::parse_step_name(path.filename().string()).has_value();
}

fs::path checkpoints_folder(const fs::path& named) {
  const auto refuse = [&](const std::string& what) {
    throw Error(
        ExitCode::usage,
        {.what = what, .where = named.string(), .hint = "give the folder of a run (it has ckpt/ in it), or its ckpt/"});
  };
  if (!fs::exists(named)) refuse("there is no such folder");
  if (!fs::is_directory(named)) refuse("not a folder");
  if (fs::is_directory(named / "ckpt")) return (named / "ckpt").lexically_normal();
  if (is_one_checkpoint(named)) refuse("this is one checkpoint, but the folder of all checkpoints is needed");
  auto folder = named.lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();  // "ckpt/"
  if (folder.filename() == "." || folder.filename() == "..") folder = fs::canonical(named);
  if (folder.filename() != "ckpt" && !holds_checkpoints(folder)) {
    refuse("neither a run nor checkpoints: it contains no ckpt/ and no step-...");
  }
  return folder;
}

std::string problem_of(const fs::path& folder) {
  try {
    const auto opened = checkpoint::Checkpoint::open(folder);
    std::error_code error;
    const auto named = checkpoint::parse_step_name(fs::canonical(folder, error).filename().string());
    if (named && named->step != opened.step()) return fmt::format("its manifest is that of step {}", opened.step());
    return "";
  } catch (const Error& failure) {
    return told_within(folder, failure.what());
  }
}

std::string metric_of(const std::vector<CkptEntry>& entries) {
  std::string metric;
  for (const auto& entry : entries) {
    if (entry.kind == CkptEntry::Kind::checkpoint && entry.problem.empty() && entry.score) metric = entry.score->metric;
  }
  return metric;
}

nlohmann::ordered_json entry_json(const CkptEntry& entry) {
  return {{"name", entry.name()},
          {"kind", kind_name(entry.kind)},
          {"path", entry.folder.string()},
          {"step", entry.step},
          {"bytes", entry.bytes},
          {"written", entry.written ? nlohmann::ordered_json(time_text(*entry.written, /*utc=*/true))
                                    : nlohmann::ordered_json(nullptr)}};
}

std::string time_text(int64_t seconds, bool utc) {
  const std::time_t time = seconds;
  std::tm parts{};
  utc ? ::gmtime_r(&time, &parts) : ::localtime_r(&time, &parts);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), utc ? "%FT%TZ" : "%F %T", &parts);
  return text.data();
}

std::string size_text(uint64_t bytes) { return monitor::bytes(static_cast<double>(bytes)); }

void print_json(const nlohmann::ordered_json& json) {
  std::fputs((json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n").c_str(), stdout);
}

}  // namespace gputrain::app

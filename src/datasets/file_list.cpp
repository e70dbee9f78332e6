#include "gputrain/datasets/file_list.hpp"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "gputrain/datasets/left_out.hpp"

namespace gputrain::datasets {
namespace {

namespace fs = std::filesystem;

/// Matches a set such as [a-z] at the start of `pattern` and removes it; false also if the set is not closed.
bool matches_set(std::string_view& pattern, char c) {
  size_t i = 1;
  const bool negated = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negated) ++i;
  bool found = false;
  for (const size_t first = i; i < pattern.size() && (pattern[i] != ']' || i == first); ++i) {
    const bool is_range = i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']';
    const char low = pattern[i], high = is_range ? pattern[i + 2] : low;
    found = found || (low <= c && c <= high);
    if (is_range) i += 2;
  }
  if (i >= pattern.size()) return false;
  pattern.remove_prefix(i + 1);
  return found != negated && c != '/';
}

/// Glob matcher that backtracks only to the last `*` and the last `**`, which is enough.
class GlobMatch {
 public:
  GlobMatch(std::string_view pattern, std::string_view path) : pattern_(pattern), path_(path) {}

  bool whole() {
    while (!pattern_.empty() || !path_.empty()) {
      if (take_star()) continue;
      if (take_one()) {
        path_.remove_prefix(1);
      } else if (!go_back()) {
        return false;
      }
    }
    return true;
  }

 private:
  struct Position {
    std::string_view pattern, path;
    bool set = false;
    bool whole_names = false;  // true for "**/": continues only at the start of a name
  };

  bool take_star() {
    if (pattern_.starts_with("**")) {
      pattern_.remove_prefix(2);
      const bool whole_names = pattern_.starts_with('/');
      if (whole_names) pattern_.remove_prefix(1);  // "**/x" also matches x itself
      folders_ = {pattern_, path_, true, whole_names};
      star_.set = false;
      return true;
    }
    if (!pattern_.starts_with('*')) return false;
    pattern_.remove_prefix(1);
    star_ = {pattern_, path_, true};
    return true;
  }

  bool take_one() {
    if (pattern_.empty() || path_.empty()) return false;
    if (pattern_[0] == '[') return matches_set(pattern_, path_[0]);
    const bool fits = pattern_[0] == path_[0] || (pattern_[0] == '?' && path_[0] != '/');
    pattern_.remove_prefix(1);
    return fits;
  }

  bool go_back() {
    if (star_.set && !star_.path.empty() && star_.path[0] != '/') {
      star_.path.remove_prefix(1);
      pattern_ = star_.pattern;
      path_ = star_.path;
      return true;
    }
    if (!folders_.set || folders_.path.empty()) return false;
    const size_t slash = folders_.whole_names ? folders_.path.find('/') : 0;
    if (slash == std::string_view::npos) return false;
    folders_.path.remove_prefix(slash + 1);
    star_.set = false;
    pattern_ = folders_.pattern;
    path_ = folders_.path;
    return true;
  }

  std::string_view pattern_, path_;
  Position star_, folders_;
};

/// Extends the pattern so that it matches whole paths.
std::string whole_pattern(std::string_view pattern) {
  const bool is_folder = pattern.ends_with('/');
  if (is_folder) pattern.remove_suffix(1);
  std::string whole(pattern);
  if (pattern.find('/') == std::string_view::npos) whole = "**/" + whole;
  if (is_folder) whole += "/**";
  return whole;
}

/// Returns whether anything in the folder ("src/data/") may match.
bool may_match_in(const std::string& pattern, const std::string& folder) {
  const std::string whole = whole_pattern(pattern), literal = whole.substr(0, whole.find_first_of("*?["));
  const std::string folders = literal.substr(0, literal.rfind('/') + 1);
  return folders.starts_with(folder) || folder.starts_with(folders);
}

/// Returns whether everything in the folder matches.
bool matches_all_in(const std::string& pattern, const std::string& folder) {
  const std::string whole = whole_pattern(pattern);
  return whole.ends_with("/**") && GlobMatch(whole, folder).whole();
}

/// Returns the folder's entries except hidden ones, in byte order.
std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with('.')) entries.push_back(*entry);
  }
  if (error)
    throw Error(ExitCode::data, {.what = "cannot list the folder: " + error.message(), .where = folder.string()});
  std::sort(entries.begin(), entries.end());
  return entries;
}

using FolderId = std::pair<dev_t, ino_t>;

std::optional<FolderId> id_of(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return std::nullopt;
  return FolderId{status.st_dev, status.st_ino};
}

class Walk {
 public:
  Walk(const fs::path& root, const FileFilter& filter, const std::vector<std::string>& own)
      : root_(root), filter_(filter) {
    for (const std::string& folder : own) {
      if (const auto id = id_of(folder)) own_.insert(*id);
    }
    if (const auto id = id_of(root); !id || !own_.contains(*id)) return;
    throw Error(ExitCode::usage, {.what = "this folder of data is also the run's, whose files would become data",
                                  .where = root.string(),
                                  .hint = "output_dir: a folder for the run alone"});
  }

  FolderListing list() {
    visit(root_, "");
    links_to_nowhere_.warn(root_.string(), "link", "to nowhere");
    special_files_.warn(root_.string(), "file", "(pipe, socket or device)");
    std::ranges::sort(found_.files);
    std::ranges::sort(found_.run_folders);
    return std::move(found_);
  }

 private:
  void visit(const fs::path& folder, const std::string& prefix) {
    const std::optional<FolderId> id = id_of(folder);
    if (!id || !visited_.insert(*id).second) return;
    const std::vector<fs::directory_entry> entries = entries_of(folder);
    if (!prefix.empty() && (own_.contains(*id) || is_run(folder, entries))) {
      found_.run_folders.push_back(prefix);
      return;
    }
    for (const fs::directory_entry& entry : entries) take(entry, prefix + entry.path().filename().string());
  }

  /// Takes an entry. Its type comes with its name; only links cost a system call.
  void take(const fs::directory_entry& entry, const std::string& path) {
    std::error_code unreadable;
    if (entry.is_directory(unreadable)) {
      if (may_want_in(path + "/")) visit(entry.path(), path + "/");
    } else if (entry.is_regular_file(unreadable)) {
      if (wants(path)) found_.files.push_back(path);
    } else if (wants(path)) {
      (entry.exists(unreadable) ? special_files_ : links_to_nowhere_).add(path);
    }
  }

  static bool is_run(const fs::path& folder, const std::vector<fs::directory_entry>& entries) {
    return std::ranges::binary_search(entries, folder / "job.resolved.yaml", {}, &fs::directory_entry::path);
  }

  /// Returns whether to read the folder. Skipped folders may be large, or not readable for this user.
  bool may_want_in(const std::string& folder) const {
    const auto may_match = [&folder](const std::string& pattern) { return may_match_in(pattern, folder); };
    const auto matches_all = [&folder](const std::string& pattern) { return matches_all_in(pattern, folder); };
    return (filter_.include.empty() || std::any_of(filter_.include.begin(), filter_.include.end(), may_match)) &&
           std::none_of(filter_.exclude.begin(), filter_.exclude.end(), matches_all);
  }

  bool wants(const std::string& path) const {
    const auto fits = [&path](const std::string& pattern) { return matches_glob(pattern, path); };
    return (filter_.include.empty() || std::any_of(filter_.include.begin(), filter_.include.end(), fits)) &&
           std::none_of(filter_.exclude.begin(), filter_.exclude.end(), fits);
  }

  const fs::path root_;
  const FileFilter& filter_;
  std::set<FolderId> own_, visited_;
  LeftOut links_to_nowhere_, special_files_;
  FolderListing found_;
};

constexpr size_t kMostFiles = 100'000;

[[noreturn]] void refuse_as_too_many(const std::string& pattern) {
  throw Error(ExitCode::data,
              {.what = "the pattern matches more than " + grouped(kMostFiles) + " files", .where = pattern});
}

bool is_number(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && text.size() <= 9 && std::all_of(text.begin(), text.end(), is_digit);
}

/// Expands the inside of braces, "000..146" or "a,b"; empty: it is neither.
std::vector<std::string> alternatives(const std::string& inside, const std::string& pattern) {
  std::vector<std::string> all;
  const size_t dots = inside.find("..");
  const std::string first = inside.substr(0, dots), last = dots == std::string::npos ? "" : inside.substr(dots + 2);
  if (is_number(first) && is_number(last)) {
    const int64_t begin = std::stoll(first), end = std::stoll(last);
    const size_t width = first[0] == '0' || last[0] == '0' ? std::max(first.size(), last.size()) : 0;
    if (end - begin >= static_cast<int64_t>(kMostFiles)) refuse_as_too_many(pattern);
    for (int64_t number = begin; number <= end; ++number) {
      const std::string digits = std::to_string(number);
      all.push_back(std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits);
    }
  } else if (inside.find(',') != std::string::npos) {
    for (size_t at = 0, comma = 0; comma != std::string::npos; at = comma + 1)
      all.push_back(inside.substr(at, (comma = inside.find(',', at)) - at));
  }
  return all;
}

/// Expands all braces of `pattern`.
std::vector<std::string> without_braces(const std::string& pattern) {
  std::vector<std::string> all{""};
  for (size_t at = 0; at < pattern.size();) {
    const size_t open = pattern.find('{', at), close = pattern.find('}', open);
    const bool is_escaped = open != std::string::npos && open > 0 && pattern[open - 1] == '\\';
    std::vector<std::string> parts;
    if (close != std::string::npos && !is_escaped)
      parts = alternatives(pattern.substr(open + 1, close - open - 1), pattern);
    const size_t end = !parts.empty() ? open : open == std::string::npos ? pattern.size() : open + 1;
    for (std::string& each : all) each += pattern.substr(at, end - at);
    at = parts.empty() ? end : close + 1;
    if (parts.empty()) continue;
    if (all.size() * parts.size() > kMostFiles) refuse_as_too_many(pattern);
    std::vector<std::string> longer;
    for (const std::string& each : all)
      for (const std::string& part : parts) longer.push_back(each + part);
    all = std::move(longer);
  }
  return all;
}

std::vector<std::string> files_of_glob(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  std::vector<std::string> files;
  if (result == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (!files.empty()) return files;
  if (pattern.find_first_of("*?[") == std::string::npos) data::throw_missing(pattern, "a file or a pattern of files");
  throw Error(ExitCode::data, {.what = "no file matches this pattern", .where = pattern});
}

}  // namespace

bool matches_glob(std::string_view pattern, std::string_view path) {
  const std::string whole = whole_pattern(pattern);
  return GlobMatch(whole, path).whole();
}

FolderListing list_folder(const std::string& folder, const FileFilter& filter, const std::vector<std::string>& own) {
  return Walk(folder, filter, own).list();
}

std::vector<std::string> expand_pattern(const std::string& pattern) {
  std::error_code ignored;
  if (fs::exists(pattern, ignored)) return {pattern};
  std::vector<std::string> files;
  for (const std::string& each : without_braces(pattern)) {
    const std::vector<std::string> found = files_of_glob(each);
    files.insert(files.end(), found.begin(), found.end());
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace gputrain::datasets

#include "gputrain/checkpoint/listing.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "atomic_folder.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;  // larger than any file we write

/// Returns the size of a file; throws if it is missing.
uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw Unreadable("missing", path);
  const uint64_t bytes = fs::is_regular_file(status) ? fs::file_size(path, error) : 0;
  if (error) throw Unreadable("cannot read: " + error.message(), path);
  if (!fs::is_regular_file(status)) throw Damage("is not a regular file", path);
  return bytes;
}

Listed look_at(const fs::path& folder, int64_t step) {
  Listed listed{.folder = folder, .step = step};
  try {
    const Manifest manifest = look_at_files(folder);
    for (const auto& [name, file] : manifest.files) listed.bytes += file.seal.bytes;
    listed.score = manifest.score;
    listed.for_good = manifest.for_good;
    if (manifest.step != step) listed.problem = fmt::format("its manifest is that of step {}", manifest.step);
  } catch (const Error& error) {
    listed.problem = error.what();
  }
  return listed;
}

std::vector<std::pair<StepName, fs::path>> finished_names_in(const fs::path& folder) {
  return on_disk(folder, "cannot list checkpoints", [&] {
    std::vector<std::pair<StepName, fs::path>> found;
    if (!fs::exists(folder)) return found;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const auto name = parse_step_name(entry.path().filename().string());
      if (!name || !name->suffix.empty()) continue;
      std::error_code unknown;
      const fs::file_type type = entry.status(unknown).type();
      const bool may_not_look = unknown && type != fs::file_type::not_found;  // told when it is looked into
      if (may_not_look || type == fs::file_type::directory) found.emplace_back(*name, entry.path());
    }
    return found;
  });
}

}  // namespace

std::string read_text(const fs::path& path) {
  const uint64_t bytes = size_of(path);
  if (bytes > kMaxTextBytes) throw Damage("too large for a file of this kind", path);
  std::string text(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) throw Unreadable("cannot read it", path);
  return text;
}

fs::path frozen_path(const fs::path& checkpoint, const Frozen& frozen) {
  std::error_code unknown;
  const fs::path real = fs::canonical(checkpoint, unknown);  // a name may be a link, or end in a slash
  const fs::path folder = unknown ? checkpoint : real;
  const fs::path inside = folder / frozen.file_name();
  return fs::exists(inside, unknown) ? inside : folder.parent_path() / frozen.file_name();
}

void look_at_frozen(const fs::path& checkpoint, const Frozen& frozen) {
  const fs::path path = frozen_path(checkpoint, frozen);
  const char* const holds = "it holds frozen weights, which all checkpoints of its run need";
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error) throw Unreadable(fmt::format("{}; {}, from {}", error.message(), holds, frozen.source), path);
  if (bytes == frozen.seal.bytes) return;
  throw Unreadable(fmt::format("has {} bytes instead of {}; {}", bytes, frozen.seal.bytes, holds), path);
}

Manifest look_at_files(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  std::error_code error;
  if (fs::status(path, error).type() == fs::file_type::not_found) throw Unreadable("has no manifest", folder);
  Manifest manifest = parse_manifest(read_text(path), path);
  for (const auto& [name, file] : manifest.files) {
    const uint64_t bytes = size_of(folder / name), expected = file.seal.bytes;
    if (bytes != expected) throw Damage(fmt::format("has {} bytes instead of {}", bytes, expected), folder / name);
  }
  if (manifest.frozen) look_at_frozen(folder, *manifest.frozen);
  return manifest;
}

std::optional<StepName> parse_step_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const size_t stem = std::min(name.find('.'), name.size());
  const char* const end = name.data() + stem;
  StepName parsed{.suffix = name.substr(stem)};
  const char* const rest = std::from_chars(name.data() + kPrefix.size(), end, parsed.step).ptr;
  if (rest != end) std::from_chars(rest + 1, end, parsed.number);
  if (parsed.step < 0 || name.substr(0, stem) != folder_name(parsed.step, parsed.number)) return std::nullopt;
  return parsed;
}

std::vector<std::pair<int64_t, fs::path>> finished_in(const std::vector<fs::path>& folders, std::string* unreadable) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, fs::path, std::greater<>> found;  // keys: step, folder, number
  for (size_t i = 0; i < folders.size(); ++i) {
    try {
      for (const auto& [name, path] : finished_names_in(folders[i]))
        found[{name.step, -static_cast<int64_t>(i), name.number}] = path;
    } catch (const Error& error) {
      if (i == 0) throw;
      if (unreadable != nullptr) *unreadable = error.what();
    }
  }
  std::vector<std::pair<int64_t, fs::path>> newest_first;
  for (const auto& [place, path] : found) newest_first.emplace_back(std::get<0>(place), path);
  return newest_first;
}

fs::path branch_folder(const fs::path& checkpoints, int64_t branch) {
  return branch == 1 ? checkpoints : checkpoints / fmt::format("branch-{}", branch);
}

std::map<int64_t, fs::path> branches_in(const fs::path& checkpoints) {
  return on_disk(checkpoints, "cannot list checkpoints", [&] {
    constexpr std::string_view kPrefix = "branch-";
    std::map<int64_t, fs::path> branches{{1, checkpoints}};
    if (!fs::exists(checkpoints)) return branches;
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints)) {
      const std::string name = entry.path().filename().string();
      int64_t branch = 0;
      if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), branch);
      if (branch > 1 && branch_folder(checkpoints, branch) == entry.path()) branches[branch] = entry.path();
    }
    return branches;
  });
}

int64_t newest_branch_in(const fs::path& checkpoints) {
  int64_t newest = 1;
  for (const auto& [branch, folder] : branches_in(checkpoints))
    if (!finished_in({folder}).empty()) newest = branch;
  return newest;
}

std::vector<Listed> list_checkpoints(const fs::path& folder) {
  std::vector<Listed> listed;
  for (const auto& [step, path] : finished_in({folder})) listed.push_back(look_at(path, step));
  return listed;
}

std::optional<Listed> newest_listed(const std::vector<fs::path>& folders) {
  for (const auto& [step, path] : finished_in(folders)) {
    Listed listed = look_at(path, step);
    if (listed.problem.empty()) return listed;
  }
  return std::nullopt;
}

}  // namespace gputrain::checkpoint

#include "gputrain/checkpoint/listing.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>

#include <fmt/format.h>

#include "places.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;  // larger than any that we write

/// The size of a file that must be there.
uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw Damage("missing", path);
  const uint64_t bytes = fs::is_regular_file(status) ? fs::file_size(path, error) : 0;
  if (error) throw Unreadable("cannot read: " + error.message(), path);
  if (!fs::is_regular_file(status)) throw Damage("is no file", path);
  return bytes;
}

/// The step of a folder's name, if it is the name of a finished checkpoint.
std::optional<int64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || rest != end || folder_name(step) != name) return std::nullopt;
  return step;
}

Listed look_at(const fs::path& folder, int64_t step) {
  Listed listed{.folder = folder, .step = step};
  try {
    const Manifest manifest = look_at_files(folder);
    for (const auto& [name, file] : manifest.files) listed.bytes += file.seal.bytes;
    listed.score = manifest.score;
    listed.lineage = manifest.origin.lineage;
    if (manifest.step != step) listed.problem = fmt::format("its manifest is that of step {}", manifest.step);
  } catch (const Error& error) {
    listed.problem = error.what();
  }
  return listed;
}

}  // namespace

std::string read_text(const fs::path& path) {
  const uint64_t bytes = size_of(path);
  if (bytes > kMaxTextBytes) throw Damage("cannot be what was written", path);
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
  if (fs::status(path, error).type() == fs::file_type::not_found) throw Damage("has no manifest", folder);
  Manifest manifest = parse_manifest(read_text(path), path);
  for (const auto& [name, file] : manifest.files) {
    const uint64_t bytes = size_of(folder / name), expected = file.seal.bytes;
    if (bytes != expected) throw Damage(fmt::format("has {} bytes instead of {}", bytes, expected), folder / name);
  }
  if (manifest.frozen) look_at_frozen(folder, *manifest.frozen);
  return manifest;
}

std::vector<int64_t> steps_in(const fs::path& folder) {
  return on_disk(folder, "cannot list checkpoints", [&] {
    std::vector<int64_t> steps;
    if (!fs::exists(folder)) return steps;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::optional<int64_t> step = step_of(entry.path().filename().string());
      if (!step) continue;
      std::error_code unknown;
      const fs::file_type type = entry.status(unknown).type();
      const bool may_not_look = unknown && type != fs::file_type::not_found;  // told when it is looked into
      if (may_not_look || type == fs::file_type::directory) steps.push_back(*step);
    }
    std::sort(steps.rbegin(), steps.rend());
    return steps;
  });
}

std::vector<Listed> list_checkpoints(const fs::path& folder) {
  std::vector<Listed> listed;
  for (const int64_t step : steps_in(folder)) listed.push_back(look_at(folder / folder_name(step), step));
  return listed;
}

std::optional<Listed> newest_listed(const fs::path& folder, const Lineage& lineage) {
  for (const int64_t step : steps_in(folder)) {
    Listed listed = look_at(folder / folder_name(step), step);
    if (listed.problem.empty() && lineage.includes(listed.lineage, step)) return listed;
  }
  return std::nullopt;
}

}  // namespace gputrain::checkpoint

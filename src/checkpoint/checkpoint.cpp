#include "gputrain/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "block_file.hpp"

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

std::string read_text(const fs::path& path) {
  const uint64_t bytes = size_of(path);
  if (bytes > kMaxTextBytes) throw Damage("cannot be what was written", path);
  std::string text(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) throw Unreadable("cannot read it", path);
  return text;
}

nlohmann::json read_state(const fs::path& path, const FileSeal& seal) {
  const std::string text = read_text(path);
  Sealer sealer;
  sealer.add(text.data(), text.size());
  if (sealer.seal() != seal) throw Damage("damaged: its hash differs", path);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception&) {
    throw Damage("not JSON", path);
  }
}

}  // namespace

Manifest look_at_files(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  std::error_code error;
  if (fs::status(path, error).type() == fs::file_type::not_found) throw Damage("has no manifest", folder);
  Manifest manifest = parse_manifest(read_text(path), path);
  for (const auto& [name, file] : manifest.files) {
    const uint64_t bytes = size_of(folder / name), expected = file.seal.bytes;
    if (bytes != expected) throw Damage(fmt::format("has {} bytes instead of {}", bytes, expected), folder / name);
  }
  return manifest;
}

void verify(const fs::path& folder, const Manifest& manifest) {
  for (const auto& [name, file] : manifest.files) {
    if (seal_of(folder / name) != file.seal) throw Damage("damaged: its hash differs", folder / name);
  }
}

Checkpoint Checkpoint::look_into(const fs::path& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.manifest_ = look_at_files(folder);
  const auto& files = checkpoint.manifest_.files;
  checkpoint.state_ =
      std::make_shared<const nlohmann::json>(read_state(folder / kStateName, files.at(kStateName).seal));
  std::map<std::string, std::vector<Part::File>> parts;
  for (const auto& [name, file] : files) {
    if (!file.part.empty()) parts[file.part].push_back({folder / name, file.seal, file.slices});
  }
  for (auto& [name, part] : parts) checkpoint.parts_.emplace(name, Part(std::move(part)));
  return checkpoint;
}

Checkpoint Checkpoint::open(const fs::path& folder) {
  verify(folder, look_at_files(folder));
  return look_into(folder);
}

std::vector<std::string> Checkpoint::part_names() const {
  std::vector<std::string> names;
  for (const auto& [name, part] : parts_) names.push_back(name);
  return names;
}

const Part& Checkpoint::part(const std::string& name) const {
  const auto found = parts_.find(name);
  if (found == parts_.end()) {
    throw Error(ExitCode::checkpoint, {.what = "has no " + name + kTensorSuffix, .where = folder_.string()});
  }
  return found->second;
}

std::vector<Part::Target> per_parameter(const device::Arena& arena, const optim::Optimizer::State& state) {
  std::vector<Part::Target> targets;
  for (const auto& [name, tensor] : state.scalars) targets.push_back({.name = name, .tensor = tensor, .slice = std::nullopt});
  const device::Range& owned = arena.owned();
  for (const auto& [kind, flat] : state.flat) {
    for (const device::Segment& segment : arena.segments()) {
      const std::string name = kind + "." + segment.name;
      const int64_t end = segment.offset + segment.numel;
      const int64_t from = std::max(owned.begin, segment.offset), until = std::min(owned.end, end);
      if (from == segment.offset && until == end) {
        targets.push_back({.name = name, .tensor = arena.state_view(flat, segment), .slice = std::nullopt});
      } else if (from < until) {
        targets.push_back({.name = name,
                           .tensor = flat.narrow(0, from - owned.begin, until - from),
                           .slice = Slice{.shape = segment.sizes, .begin = from - segment.offset}});
      }
    }
  }
  return targets;
}

}  // namespace gputrain::checkpoint

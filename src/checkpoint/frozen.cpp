#include "gputrain/checkpoint/frozen.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "block_file.hpp"
#include "safetensors/dtypes.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> bytes_at(const fs::path& path) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  return error ? std::nullopt : std::optional(bytes);
}

bool is_frozen_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("frozen-") && name.ends_with(kTensorSuffix);
}

}  // namespace

Frozen::Tensor note_of(const at::Tensor& tensor) {
  const at::Tensor rows = tensor.detach().to(at::kCPU).contiguous();
  Sealer sealer;
  sealer.add(rows.const_data_ptr(), rows.nbytes());
  return {.dtype = dtype_of(tensor.scalar_type()), .shape = tensor.sizes().vec(), .xxh3_128 = sealer.seal().xxh3_128};
}

bool has_other_values(const at::Tensor& now, const Frozen::Tensor& written) {
  const at::ScalarType type = scalar_type_of(written.dtype);
  if (at::isFloatingType(type) != now.is_floating_point()) return false;  // packed then, or packed now
  if (type != now.scalar_type() && c10::elementSize(type) >= c10::elementSize(now.scalar_type())) return false;
  return note_of(now.to(type)) != written;
}

FrozenWeights::FrozenWeights(NamedTensors tensors, std::string source, Kept kept)
    : kept_(kept), tensors_(std::move(tensors)) {
  note_.source = std::move(source);
  std::map<std::string, FileSeal> seals;
  note_.seal = seal_of_safetensors(tensors_, seals);
  for (const auto& [name, tensor] : tensors_) {
    note_.tensors[name] = {
        .dtype = dtype_of(tensor.scalar_type()), .shape = tensor.sizes().vec(), .xxh3_128 = seals.at(name).xxh3_128};
  }
}

uint64_t FrozenWeights::missing_bytes(const fs::path& folder) const {
  return bytes_at(folder / note_.file_name()) == note_.seal.bytes ? 0 : note_.seal.bytes;
}

bool FrozenWeights::is_at_hand() const {
  const std::scoped_lock lock(mutex_);
  return !tensors_.empty() || std::ranges::all_of(holders_, [&](const fs::path& folder) {
    return bytes_at(folder / note_.file_name()) == note_.seal.bytes;
  });
}

void FrozenWeights::put_into(const fs::path& folder) {
  const std::scoped_lock lock(mutex_);
  const fs::path path = folder / note_.file_name();
  const bool has_size = bytes_at(path) == note_.seal.bytes;
  if (has_size && holders_.contains(folder)) return;
  if (!has_size || seal_of(path) != note_.seal) {
    if (tensors_.empty()) throw Unreadable("the frozen weights that were written are gone", path);
    write_safetensors(path, tensors_);
    if (seal_of(path) != note_.seal) throw Damage("is not what was written: its hash differs", path);
  }
  holders_.insert(folder);
  if (kept_ == Kept::until_written) tensors_.clear();
}

void verify_frozen(const fs::path& checkpoint, const Frozen& frozen) {
  look_at_frozen(checkpoint, frozen);
  const fs::path path = frozen_path(checkpoint, frozen);
  if (seal_of(path) == frozen.seal) return;
  throw Unreadable("damaged: its hash differs; it holds frozen weights, which all checkpoints of its run need", path);
}

void remove_unused_frozen(const fs::path& folder) {
  try {
    std::set<std::string> named;
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const fs::path manifest = entry.path() / kManifestName;
      if (is_frozen_file(entry.path())) files.push_back(entry.path());
      if (entry.is_symlink() || !fs::exists(manifest)) continue;
      if (const auto& frozen = parse_manifest(read_text(manifest), manifest).frozen) named.insert(frozen->file_name());
    }
    for (const fs::path& path : files) {
      if (!named.contains(path.filename().string())) fs::remove(path);
    }
  } catch (const std::exception&) {
    // Nothing needs the room now: the next save tries again.
  }
}

}  // namespace gputrain::checkpoint

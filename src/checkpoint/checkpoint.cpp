#include "gputrain/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "manifest.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTensorSuffix = ".safetensors";
constexpr std::string_view kPartialSuffix = ".partial";

/// Turns what the file system throws into our error.
template <class Action>
auto on_disk(const fs::path& path, const std::string& what, Action action) {
  try {
    return action();
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::checkpoint, {.what = what + ": " + error.code().message(), .where = path.string()});
  }
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

/// The steps for which there is a folder, newest first.
std::vector<int64_t> steps_in(const fs::path& folder) {
  return on_disk(folder, "cannot list checkpoints", [&] {
    std::vector<int64_t> steps;
    if (!fs::exists(folder)) return steps;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::optional<int64_t> step = step_of(entry.path().filename().string());
      if (step && entry.is_directory()) steps.push_back(*step);
    }
    std::sort(steps.rbegin(), steps.rend());
    return steps;
  });
}

/// Folders that a killed process was writing or removing.
void remove_partial_folders(const fs::path& folder) {
  on_disk(folder, "cannot remove what an earlier attempt left", [&] {
    std::vector<fs::path> partial;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("step-") && name.ends_with(kPartialSuffix)) partial.push_back(entry.path());
    }
    for (const fs::path& path : partial) fs::remove_all(path);
  });
}

/// Puts `written` in the place of `target`. An older folder there ends up under the name of `written`.
void put_in_place(const fs::path& written, const fs::path& target) {
  const unsigned int flags = fs::exists(target) ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (::renameat2(AT_FDCWD, written.c_str(), AT_FDCWD, target.c_str(), flags) == 0) return;
  const bool is_unsupported = errno == EINVAL || errno == ENOSYS;
  if (!is_unsupported) {
    throw Error(ExitCode::checkpoint,
                {.what = std::string("cannot rename into place: ") + std::strerror(errno), .where = target.string()});
  }
  on_disk(target, "cannot rename into place", [&] {  // file systems without exchange, such as NFS
    const fs::path old = target.string() + ".old" + std::string(kPartialSuffix);
    if (fs::exists(target)) fs::rename(target, old);
    fs::rename(written, target);
    fs::remove_all(old);
  });
}

/// Writes everything into a folder; the manifest comes last.
void write_folder(const fs::path& folder, int64_t step, const std::map<std::string, NamedTensors>& files,
                  const nlohmann::json& state) {
  on_disk(folder, "cannot create the folder", [&] { fs::create_directory(folder); });
  Manifest manifest{.step = step};
  for (const auto& [name, tensors] : files) {
    const std::string file = name + std::string(kTensorSuffix);
    manifest.files[file] = write_safetensors(folder / file, tensors);
  }
  const std::string text = state.dump(2) + "\n";
  write_file_atomically(folder / kStateName, text, ExitCode::checkpoint);
  Sealer sealer;
  sealer.add(text.data(), text.size());
  manifest.files[kStateName] = sealer.seal();
  write_file_atomically(folder / kManifestName, to_json(manifest), ExitCode::checkpoint);
}

/// Takes a checkpoint away so that no moment shows half of one under a finished name.
void remove_checkpoint(const fs::path& folder) {
  on_disk(folder, "cannot remove an old checkpoint", [&] {
    const fs::path leaving = folder.string() + std::string(kPartialSuffix);
    fs::rename(folder, leaving);
    fs::remove_all(leaving);
  });
}

/// Whether manifest and sizes are right; hashes are left to whoever wants to read it.
bool looks_good(const fs::path& folder) {
  try {
    verify(folder, /*hashes=*/false);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Keeps `newest` and the next ones before it that look good, `keep_last` in all, and removes what is older.
void prune(const fs::path& folder, int64_t newest, int64_t keep_last) {
  int64_t kept = 0;
  for (const int64_t step : steps_in(folder)) {
    const fs::path path = folder / folder_name(step);
    if (step > newest) continue;  // of a branch that was left; not ours to judge
    if (kept >= keep_last) {
      remove_checkpoint(path);
    } else if (looks_good(path)) {
      ++kept;
    }
  }
}

std::string shown(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", at::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& folder) {
  const Manifest manifest = verify(folder, /*hashes=*/true);
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.step_ = manifest.step;
  for (const auto& [name, seal] : manifest.files) {
    if (!name.ends_with(kTensorSuffix)) continue;
    checkpoint.files_.emplace(name.substr(0, name.size() - kTensorSuffix.size()),
                              SafetensorsFile(folder / name, ExitCode::checkpoint));
  }
  try {
    checkpoint.state_ = std::make_shared<const nlohmann::json>(nlohmann::json::parse(read_text(folder / kStateName)));
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitCode::checkpoint, {.what = "not JSON", .where = (folder / kStateName).string()});
  }
  return checkpoint;
}

const SafetensorsFile& Checkpoint::file(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) {
    throw Error(ExitCode::checkpoint,
                {.what = fmt::format("has no {}{}", name, kTensorSuffix), .where = folder_.string()});
  }
  return found->second;
}

CheckpointStore::CheckpointStore(fs::path folder, int64_t keep_last)
    : folder_(std::move(folder)), keep_last_(keep_last) {
  GPUTRAIN_ASSERT(keep_last >= 1, "at least the newest checkpoint is kept");
}

fs::path CheckpointStore::save(int64_t step, const std::map<std::string, NamedTensors>& files,
                               const nlohmann::json& state) {
  on_disk(folder_, "cannot create the folder", [&] { fs::create_directories(folder_); });
  remove_partial_folders(folder_);
  const fs::path target = folder_ / folder_name(step), written = target.string() + std::string(kPartialSuffix);
  try {
    write_folder(written, step, files, state);
    verify(written, /*hashes=*/true);
    put_in_place(written, target);
    sync_folder(folder_, ExitCode::checkpoint);
  } catch (...) {
    std::error_code ignored;  // the first error is the one to tell
    fs::remove_all(written, ignored);
    throw;
  }
  remove_partial_folders(folder_);  // the one that was replaced
  prune(folder_, step, keep_last_);
  return target;
}

CheckpointStore::Search CheckpointStore::find_newest() const {
  Search search;
  for (const int64_t step : steps_in(folder_)) {
    const fs::path path = folder_ / folder_name(step);
    try {
      search.newest = Checkpoint::open(path);
      if (search.newest->step() == step) return search;
      search.rejected.push_back({path, fmt::format("its manifest is that of step {}", search.newest->step())});
      search.newest.reset();
    } catch (const Error& error) {
      search.rejected.push_back({path, error.what()});
    }
  }
  return search;
}

NamedTensors per_parameter(const device::Arena& arena, const optim::Optimizer::State& state) {
  NamedTensors tensors = state.scalars;
  for (const auto& [kind, flat] : state.flat) {
    for (const device::Segment& segment : arena.segments()) {
      tensors.emplace_back(kind + "." + segment.name, arena.view(flat, segment));
    }
  }
  return tensors;
}

void restore(const SafetensorsFile& file, const NamedTensors& live) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ExitCode::checkpoint, {.what = what,
                                       .where = file.path().string(),
                                       .hint = "resume with the job that wrote it, or set checkpoint.resume: never"});
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, tensor] : live) {
    const at::Tensor saved = file.tensor(name);
    if (saved.scalar_type() != tensor.scalar_type() || saved.sizes() != tensor.sizes()) {
      refuse(fmt::format("'{}' is {}, but {} in this job", name, shown(saved), shown(tensor)));
    }
    copies.emplace_back(tensor, saved);
  }
  if (live.size() != file.names().size()) {
    refuse(fmt::format("has {} tensors, this job {}", file.names().size(), live.size()));
  }
  for (const auto& [tensor, saved] : copies) tensor.detach().copy_(saved);
}

}  // namespace gputrain::checkpoint

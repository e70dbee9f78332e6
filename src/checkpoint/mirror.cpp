#include "gputrain/checkpoint/mirror.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "atomic_folder.hpp"
#include "block_file.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/device/thread.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kSpareBytes = uint64_t{1} << 16;  // for the manifest and the folder
constexpr auto kPatienceAtTheEnd = std::chrono::seconds(2);

struct BrokenOff {};

/// Bypasses the page cache, like the original save.
template <class Pause>
void copy_file(const fs::path& from, const fs::path& to, const FileSeal& seal, const Pause& pause) {
  BlockReader source(from, BlockReader::From::cache);
  AtomicFile file(to, ExitCode::checkpoint);
  BlockWriter target(file);
  for (std::string_view block = source.next(); !block.empty(); block = source.next()) {
    pause();
    target.write(block.data(), block.size());
  }
  if (target.finish() != seal) throw Damage("damaged: its hash differs", from);
  file.commit();
}

bool is_copy_of(const fs::path& folder, const Manifest& manifest) {
  try {
    return fs::exists(folder) && to_json(look_at_files(folder)) == to_json(manifest);
  } catch (const std::exception&) {  // some file systems fail even on a lookup
    return false;
  }
}

bool holds_copy_of(const fs::path& folder, const Manifest& manifest) {
  return std::ranges::any_of(finished_in({folder}), [&](const auto& finished) {
    return finished.first == manifest.step && is_copy_of(finished.second, manifest);
  });
}

/// Copies the frozen weights, once for all checkpoints there.
template <class Pause>
void copy_frozen(const fs::path& checkpoint, const Frozen& frozen, const fs::path& folder, const Pause& pause) {
  const fs::path target = folder / frozen.file_name();
  std::error_code missing;
  if (fs::file_size(target, missing) == frozen.seal.bytes && !missing) return;
  copy_file(frozen_path(checkpoint, frozen), target, frozen.seal, pause);
  if (seal_of(target) != frozen.seal) throw Damage("is not what was copied: its hash differs", target);
}

uint64_t bytes_of(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += file.seal.bytes;
  if (manifest.frozen) bytes += manifest.frozen->seal.bytes;
  return bytes;
}

}  // namespace

struct Mirror::State {
  explicit State(CheckpointStore copies) : store(std::move(copies)), folder(store.folder()) {}
  const CheckpointStore store;
  const fs::path folder;

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<fs::path> waiting;
  bool is_copying = false, is_held = false, is_closing = false, has_ended = false;
  std::vector<Result> results;

  static void run(const std::shared_ptr<State>& state);
  std::optional<Result> copy(const fs::path& checkpoint);
  void write(const fs::path& checkpoint, const Manifest& manifest);
  void pause();
};

void Mirror::State::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->waiting || state->is_closing; });
    if (state->is_closing) break;
    const fs::path checkpoint = *std::exchange(state->waiting, std::nullopt);
    state->is_copying = true;
    lock.unlock();
    auto result = state->copy(checkpoint);
    lock.lock();
    state->is_copying = false;
    if (result) state->results.push_back(std::move(*result));
    state->changed.notify_all();
  }
  state->has_ended = true;
  state->changed.notify_all();
}

/// Blocks while the mirror is held. Throws BrokenOff when it closes.
void Mirror::State::pause() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !is_held || is_closing; });
  if (is_closing) throw BrokenOff();
}

std::optional<Mirror::Result> Mirror::State::copy(const fs::path& checkpoint) {
  const auto begin = Clock::now();
  Result result;
  std::optional<Manifest> manifest;
  try {
    manifest = look_at_files(checkpoint);
    result.step = manifest->step;
    result.bytes = bytes_of(*manifest);
    if (holds_copy_of(folder, *manifest)) return std::nullopt;
    write(checkpoint, *manifest);
  } catch (const BrokenOff&) {
    return std::nullopt;
  } catch (const Error& error) {
    result.failure = error;
  } catch (const std::exception& error) {
    result.failure = Error(ExitCode::checkpoint, {.what = error.what(), .where = folder.string()});
  }
  // The original was replaced or pruned during the copy: not a failure.
  if (result.failure && (!manifest || !is_copy_of(checkpoint, *manifest))) return std::nullopt;
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

void Mirror::State::write(const fs::path& checkpoint, const Manifest& manifest) {
  const fs::path written = partial_name_of(folder / folder_name(manifest.step));
  fs::path target;
  create_folder(folder);
  if (const auto trouble = remove_partial_folders(folder); !trouble.empty()) log::warning(trouble);
  check_room(folder, bytes_of(manifest) + kSpareBytes, "free space there, or name another checkpoint.mirror");
  try {
    fs::create_directory(written);
    for (const auto& [name, file] : manifest.files)
      copy_file(checkpoint / name, written / name, file.seal, [&] { pause(); });
    write_file_atomically(written / kManifestName, to_json(manifest), ExitCode::checkpoint);
    verify(written, manifest);
    if (manifest.frozen) copy_frozen(checkpoint, *manifest.frozen, folder, [&] { pause(); });
    pause();
    target = commit_folder(written, folder, manifest.step);
  } catch (...) {
    std::error_code ignored;  // report the first error
    fs::remove_all(written, ignored);
    throw;
  }
  store.prune({.newest = Checkpoint::look_into(target), .rejected = {}, .unreadable = {}});
}

Mirror::Mirror(fs::path checkpoints, Retention retention, int64_t branch)
    : state_(std::make_shared<State>(CheckpointStore(std::move(checkpoints), retention, branch))) {}

Mirror::~Mirror() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(state_->mutex);
  state_->is_closing = true;
  state_->changed.notify_all();
  const bool has_ended = state_->changed.wait_for(lock, kPatienceAtTheEnd, [&] { return state_->has_ended; });
  lock.unlock();
  has_ended ? thread_.join() : thread_.detach();
}

void Mirror::begin(const fs::path& checkpoint) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->waiting = checkpoint;
  }
  state_->changed.notify_all();
  if (thread_.joinable()) return;
  thread_ = device::start_thread("mirror", [state = state_] { State::run(state); });
}

void Mirror::hold(bool held) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_held = held;
  }
  state_->changed.notify_all();
}

bool Mirror::wait(double seconds) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                  [&] { return !state_->waiting && !state_->is_copying; });
}

std::vector<Mirror::Result> Mirror::take_results() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->results, {});
}

}  // namespace gputrain::checkpoint

#include "gputrain/checkpoint/mirror.hpp"

#include <chrono>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/signals.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kPieceBytes = size_t{1} << 22;
constexpr uint64_t kSpareBytes = uint64_t{1} << 16;  // for the manifest and the folder
constexpr auto kPatienceAtTheEnd = std::chrono::seconds(2);
constexpr const char* kPartial = ".partial";

struct BrokenOff {};

[[noreturn]] void fail_to_mirror(const std::string& what, const fs::path& where) {
  throw Error(ExitCode::checkpoint, {.what = what + ": " + std::strerror(errno), .where = where.string()});
}

/// Goes back to read() or write() after a signal.
template <class Call>
ssize_t retrying(Call call) {
  ssize_t count = 0;
  do {
    count = call();
  } while (count < 0 && errno == EINTR);
  return count;
}

template <class Pause>
void copy_file(const fs::path& from, const fs::path& to, std::vector<char>& piece, const Pause& pause) {
  const Descriptor source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (source.get() < 0) fail_to_mirror("cannot open", from);
  const Descriptor target(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (target.get() < 0) fail_to_mirror("cannot create", to);
  while (true) {
    pause();
    const ssize_t got = retrying([&] { return ::read(source.get(), piece.data(), piece.size()); });
    if (got < 0) fail_to_mirror("cannot read", from);
    if (got == 0) break;
    for (ssize_t done = 0; done < got;) {
      const auto left = static_cast<size_t>(got - done);
      const ssize_t written = retrying([&] { return ::write(target.get(), piece.data() + done, left); });
      if (written < 0) fail_to_mirror("cannot write", to);
      done += written;
    }
  }
  if (::fsync(target.get()) != 0) fail_to_mirror("cannot sync", to);
}

void check_room(const fs::path& folder, uint64_t needed) {
  std::error_code unknown;
  const fs::space_info space = fs::space(folder, unknown);
  if (unknown || space.available >= needed) return;
  throw Error(ExitCode::checkpoint,
              {.what = fmt::format("no room in the mirror: a checkpoint needs {:.1f} MB, {:.1f} MB are free",
                                   static_cast<double>(needed) / 1e6, static_cast<double>(space.available) / 1e6),
               .where = folder.string()});
}

/// What a process that was killed, or a copy that was broken off, has left.
void remove_partial(const fs::path& folder) {
  std::vector<fs::path> partial;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(kPartial)) partial.push_back(entry.path());
  }
  for (const auto& path : partial) fs::remove_all(path);
}

bool is_copy_of(const fs::path& folder, const Manifest& manifest) {
  try {
    return fs::exists(folder) && to_json(look_at_files(folder)) == to_json(manifest);
  } catch (const Error&) {
    return false;
  }
}

uint64_t bytes_of(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += file.seal.bytes;
  return bytes;
}

}  // namespace

struct Mirror::State {
  State(fs::path where, Retention kept) : folder(std::move(where)), retention(kept) {}
  const fs::path folder;
  const Retention retention;

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

/// Waits while it is held.
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
    if (is_copy_of(folder / folder_name(manifest->step), *manifest)) return std::nullopt;
    write(checkpoint, *manifest);
  } catch (const BrokenOff&) {
    return std::nullopt;
  } catch (const Error& error) {
    result.failure = error;
  } catch (const std::exception& error) {
    result.failure = Error(ExitCode::checkpoint, {.what = error.what(), .where = folder.string()});
  }
  // Saved anew or pruned while it was copied: the one after it counts.
  if (result.failure && (!manifest || !is_copy_of(checkpoint, *manifest))) return std::nullopt;
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

void Mirror::State::write(const fs::path& checkpoint, const Manifest& manifest) {
  const fs::path target = folder / folder_name(manifest.step), written = target.string() + kPartial;
  fs::create_directories(folder);
  remove_partial(folder);
  check_room(folder, bytes_of(manifest) + kSpareBytes);
  try {
    fs::create_directory(written);
    std::vector<char> piece(kPieceBytes);
    for (const auto& [name, file] : manifest.files) copy_file(checkpoint / name, written / name, piece, [&] { pause(); });
    write_file_atomically(written / kManifestName, to_json(manifest), ExitCode::checkpoint);
    verify(written, manifest);
    pause();
    if (fs::exists(target)) fs::rename(target, target.string() + ".old" + kPartial);
    fs::rename(written, target);
    sync_folder(folder, ExitCode::checkpoint);
  } catch (...) {
    std::error_code ignored;  // the first error is the one to tell
    fs::remove_all(written, ignored);
    throw;
  }
  remove_partial(folder);
  CheckpointStore(folder, retention).prune({.newest = Checkpoint::look_into(target), .rejected = {}});
}

Mirror::Mirror(fs::path folder, Retention retention) : state_(std::make_shared<State>(std::move(folder), retention)) {}

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
  const SignalsBlocked in_the_new_thread;
  thread_ = std::thread([state = state_] { State::run(state); });
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

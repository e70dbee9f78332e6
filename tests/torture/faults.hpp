// Preloaded into the tested program (LD_PRELOAD): sees every operation that changes a folder, and can make one fail.
//
//   FAULTS_FOLDER      sees operations on this path and below
//   FAULTS_LOG         gets a line per operation, "RANK 17 fsync PATH", or "fault RANK 17 fsync PATH"; RANK is that of
//                      the environment, or "-"
//   FAULTS_RANK        for a job of several processes: only the process with this RANK fails, stops or is cut; the
//                      others are seen. Processes with the same FAULTS_LOG are of one job
//   FAULTS_ON          counts only operations that match this pattern (fnmatch on "fsync PATH"); default: all
//   FAULTS_AT          the number of the operation that fails; `torn`, `short` and `interrupt` take the first operation
//                      from there on that supports them
//   FAULTS_DO          kill-before, kill-after  SIGKILL
//                      torn                     half of a write, then SIGKILL
//                      cut-before, cut-after    a power cut (power_cut.hpp), then SIGKILL to all processes of the job
//                      error                    fails once with errno FAULTS_ERROR
//                      errors                   this one and all later ones fail
//                      short, interrupt         a short write; EINTR once
//   FAULTS_STOP_AFTER  SIGTERM this many operations after the fault, or after the start if FAULTS_AT is not set
//   FAULTS_SEED        decides what a power cut loses
//   FAULTS_SPARE       a folder next to FAULTS_FOLDER, on the same file system, for what a power cut restores
//   FAULTS_LIE         if set, every sync reports success and does nothing
#pragma once

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <array>

#include "job_processes.hpp"
#include "power_cut.hpp"

namespace torture {

inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

inline int64_t number(const char* name) { return std::strtoll(variable(name).c_str(), nullptr, 10); }

/// Counts operations and decides whether each fails.
class Faults {
 public:
  bool concerns(const std::string& path) const { return !folder_.empty() && is_below(path, folder_); }

  std::string path_of(int fd) const {
    std::array<char, PATH_MAX> target{};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const ssize_t bytes = folder_.empty() ? -1 : ::readlink(link.c_str(), target.data(), target.size());
    return bytes < 0 ? std::string() : std::string(target.data(), static_cast<size_t>(bytes));
  }

  std::string path_at(int folder_fd, const char* path) const {
    if (folder_.empty() || path == nullptr || *path == '/') return path == nullptr ? "" : path;
    return (folder_fd == AT_FDCWD ? std::filesystem::current_path().string() : path_of(folder_fd)) + "/" + path;
  }

  /// Performs one operation. `partly` performs a part of it; null if that is impossible.
  template <class Action, class Note, class Partly>
  auto perform(const char* operation, const std::string& path, Action action, Note note, Partly partly)
      -> decltype(action()) {
    const std::lock_guard lock(mutex_);
    ++seen_;
    if (is_chosen_ && stop_after_ > 0 && (done_ || at_ == 0) && --stop_after_ == 0) ::kill(::getpid(), SIGTERM);
    constexpr bool kIsWrite = !std::is_same_v<Partly, std::nullptr_t>;
    const bool is_fault = is_now(operation, path, kIsWrite);
    log(is_fault ? "fault " : "", operation, path);
    if (!is_fault) return noted(action, note);

    done_ = true;
    if (do_ == "kill-before") die();
    if (do_ == "cut-before") cut();
    if (do_ == "error" || do_ == "errors" || do_ == "interrupt") {
      if (std::strcmp(operation, "close") == 0) action();  // Linux closes the descriptor even if close() fails
      errno = do_ == "interrupt" ? EINTR : error_;
      return static_cast<decltype(action())>(-1);
    }
    if constexpr (kIsWrite) {
      if (do_ == "short") return noted(partly, note);
      if (do_ == "torn") {
        noted(partly, note);
        die();
      }
    }
    const auto result = noted(action, note);
    if (do_ == "kill-after") die();
    if (do_ == "cut-after") cut();
    return result;
  }

  Unsynced& unsynced() { return unsynced_; }

 private:
  template <class Action, class Note>
  static auto noted(Action action, Note note) -> decltype(action()) {
    const auto result = action();
    const int error = errno;
    if (result != static_cast<decltype(action())>(-1)) note(result);
    errno = error;
    return result;
  }

  bool is_now(const std::string& operation, const std::string& path, bool is_write) {
    if (at_ == 0 || !is_chosen_) return false;
    if (done_) return do_ == "errors" && operation != "close";
    if (on_.empty() || ::fnmatch(on_.c_str(), (operation + " " + path).c_str(), 0) == 0) ++counted_;
    if (counted_ < at_) return false;
    if (do_ == "torn" || do_ == "short") return is_write;
    if (do_ == "interrupt") return is_write || operation == "open" || operation.ends_with("sync");
    return counted_++ == at_;
  }

  [[noreturn]] static void die() {
    ::kill(::getpid(), SIGKILL);
    while (true) ::pause();
  }

  /// Of several processes, the others stand still while this one's unsynced changes get lost.
  [[noreturn]] void cut() {
    const std::string job = variable("FAULTS_LOG");
    if (!chosen_.empty()) {
      freeze_others(job);
      unsynced_.learn_of_syncs_by_others(job, rank_);
    }
    unsynced_.lose(static_cast<uint64_t>(number("FAULTS_SEED")));
    if (!chosen_.empty()) kill_others(job);
    die();
  }

  void log(const char* prefix, const char* operation, const std::string& path) const {
    if (log_ < 0) return;
    const std::string line = prefix + rank_ + " " + std::to_string(seen_) + " " + operation + " " + path + "\n";
    ::syscall(SYS_write, log_, line.data(), line.size());
  }

  std::string folder_ = variable("FAULTS_FOLDER"), on_ = variable("FAULTS_ON"), do_ = variable("FAULTS_DO");
  std::string chosen_ = variable("FAULTS_RANK"), rank_ = variable("RANK").empty() ? "-" : variable("RANK");
  bool is_chosen_ = chosen_.empty() || chosen_ == rank_;
  int64_t at_ = number("FAULTS_AT"), stop_after_ = number("FAULTS_STOP_AFTER"), seen_ = 0, counted_ = 0;
  int error_ = static_cast<int>(number("FAULTS_ERROR"));
  int log_ = static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, variable("FAULTS_LOG").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  bool done_ = false;
  std::mutex mutex_;
  Unsynced unsynced_{variable("FAULTS_SPARE"), log_};
};

/// Never destroyed, because files are closed until the end of the process.
inline Faults& faults() {
  static auto* const instance = new Faults();
  return *instance;
}

}  // namespace torture

// Ending before the plan does: signals, limits, notices, and how the ranks agree on it. Nobody stops alone.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::train {

/// Why training ends before its last step. When ranks differ, the last one of this list that any of them has counts.
/// `diverged`, to go back to a checkpoint and on from there, is never voted on: every rank sees it.
enum class Stop { none, max_time, early_stop, max_duration, notice, restart, interrupted, terminated, diverged };

/// A rank's own reason at this moment; asked often, from the training thread.
using StopReason = std::function<Stop()>;

/// Installs handlers: SIGTERM, SIGINT, SIGUSR1 and, unless it is ignored, SIGHUP ask to stop, SIGUSR2 asks for a
/// checkpoint. As long as there is nothing to save they end the process at once, with the exit code of the stop: nobody
/// need wait for a rank that is missing or a data set that is being read. To be called once, before anything computes:
/// the handlers run on a thread of their own, and no thread that is started from then on gets these signals. Throws
/// Error(environment) where no thread can be had.
void watch_signals();
/// From now on signals are noted, for the ranks to agree on; only a second SIGINT still ends the process at once. One
/// of the parent, which may pass on what it was told, and one of somebody else are one.
void note_signals() noexcept;
/// From now on the process ends by an error, with that one's exit code: who is asked to stop as well, as a launcher
/// asks all ranks once it has seen one end, ends no other way. A SIGINT still does.
void note_failure() noexcept;
/// From now on all of the run is on disk: who ends the process loses nothing.
void note_saved() noexcept;
/// The strongest of the stops asked for by signals since note_signals().
Stop noted_stop() noexcept;
/// The exit code that a preempted run ends with.
ExitCode exit_code_of(Stop stop) noexcept;

/// Checkpoints asked for from outside: by SIGUSR2, or by a file that appears.
class SaveRequests {
 public:
  explicit SaveRequests(std::filesystem::path file) : file_(std::move(file)) {}  // empty: signals only
  bool pending() const;
  /// Takes away what is pending: the file is removed.
  void served();

 private:
  std::filesystem::path file_;
  int64_t served_signals_ = 0;
};

/// Number of values a rank contributes to a sum over ranks to agree on a stop.
inline constexpr size_t kStopVotes = static_cast<size_t>(Stop::terminated);
std::array<int64_t, kStopVotes> stop_votes(Stop own) noexcept;
Stop agreed_stop(std::span<const int64_t> summed_votes) noexcept;

/// Agreement on a stop in a loop that every rank runs equally often, one iteration behind so that nobody waits. Ends
/// that are part of the plan (max_time, early_stop) do not count.
class StopPoll {
 public:
  StopPoll(comm::ProcessGroups& groups, StopReason own);
  /// What has been agreed in the calls before, and votes again. Every rank must call.
  Stop next();
  /// The same with the last call. Every rank must call, unless it leaves by an error.
  Stop finish();

 private:
  comm::ProcessGroups& groups_;
  StopReason own_;
  at::Tensor votes_;
  comm::Pending pending_;
  Stop agreed_ = Stop::none;  // also where its reason was taken back since, as a cloud's notice may be
};

}  // namespace gputrain::train

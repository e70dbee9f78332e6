// Ends training early: signals, limits, notices, and how the ranks agree on a stop. No rank stops alone.
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

/// The reason why training ends before its last step. If ranks differ, the last one in this list wins. `diverged` means
/// roll back to a checkpoint and continue; it needs no vote, because every rank detects it.
enum class Stop {
  none,
  max_time,
  early_stop,
  max_duration,
  notice,
  restart,
  ordered,  // ordered by `gputrain ctl` or an alert
  spent,    // limits.max_cost: do not start again
  idle,     // limits.idle: do not start again
  interrupted,
  terminated,
  diverged
};

/// A function that returns this rank's reason to stop now; called often, from the training thread.
using StopReason = std::function<Stop()>;

/// Installs signal handlers: SIGTERM, SIGINT, SIGUSR1 and, unless ignored, SIGHUP request a stop; SIGUSR2 requests a
/// checkpoint. Until note_signals() a stop ends the process at once with the stop's exit code, because there is nothing
/// to save. Call it once, before any computation: handlers run on a thread of their own, and threads started later
/// block these signals. Throws Error(environment) if the thread cannot start.
void watch_signals();
/// Makes stop signals be only noted from now on, for the ranks to agree on; a second SIGINT still ends the process at
/// once. One SIGINT from the parent and one from another process count as one, because the launcher forwards signals.
void note_signals() noexcept;
/// Says that the process ends with an error and keeps that error's exit code: from now on it ignores stop signals,
/// which a launcher sends to all ranks once one has ended. SIGINT still ends it.
void note_failure() noexcept;
/// Says that the whole run is on disk, so ending the process loses nothing from now on.
void note_saved() noexcept;
/// Returns the strongest stop requested by signals since note_signals().
Stop noted_stop() noexcept;
/// Returns the exit code of a preempted run.
ExitCode exit_code_of(Stop stop) noexcept;

/// Checkpoint requests from outside: SIGUSR2, or a file that appears.
class SaveRequests {
 public:
  explicit SaveRequests(std::filesystem::path file) : file_(std::move(file)) {}  // empty: signals only
  bool pending() const;
  /// Clears the pending request and removes the file.
  void served();

 private:
  std::filesystem::path file_;
  int64_t served_signals_ = 0;
};

/// Number of values that a rank adds to an all-reduce in order to agree on a stop.
inline constexpr size_t kStopVotes = static_cast<size_t>(Stop::terminated);
std::array<int64_t, kStopVotes> stop_votes(Stop own) noexcept;
Stop agreed_stop(std::span<const int64_t> summed_votes) noexcept;

/// Agreement on a stop in a loop that every rank runs equally often. It lags one iteration, so that no rank waits.
/// Planned ends (max_time, early_stop) do not count.
class StopPoll {
 public:
  StopPoll(comm::ProcessGroups& groups, StopReason own);
  /// Returns the stop agreed in earlier calls and votes again. Every rank must call.
  Stop next();
  /// Returns the same, including the last vote. Every rank must call, unless it fails.
  Stop finish();

 private:
  comm::ProcessGroups& groups_;
  StopReason own_;
  at::Tensor votes_;
  comm::Pending pending_;
  Stop agreed_ = Stop::none;  // stays set even if its reason is withdrawn, as a cloud's notice may be
};

}  // namespace gputrain::train

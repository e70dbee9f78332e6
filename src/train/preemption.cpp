#include "gputrain/train/preemption.hpp"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <unistd.h>

#include "gputrain/core/signals.hpp"

namespace gputrain::train {
namespace {

std::atomic<int> noted = static_cast<int>(Stop::none), save_signals = 0;
struct Interrupts {
  std::atomic<int> of_parent = 0, of_others = 0;
} interrupts;
std::atomic<bool> is_noting = false, is_saved = false, is_failing = false, has_terminal = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

Stop stop_of(int signal) noexcept {
  if (signal == SIGUSR1) return Stop::restart;
  return signal == SIGINT ? Stop::interrupted : Stop::terminated;
}

void say(std::string_view text) noexcept {
  const int of_the_interrupted = errno;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  errno = of_the_interrupted;
}

[[noreturn]] void leave(Stop stop) noexcept {
  if (has_terminal && !is_saved) say("\n");  // below the line that is redrawn
  if (!is_noting)
    say("stopped at once, on request; nothing was saved\n");
  else if (!is_saved)
    say("stopped at once, on request; what was not yet saved is lost\n");
  std::_Exit(static_cast<int>(exit_code_of(stop)));
}

/// Returns whether a second interrupt arrived from the same source. If all processes of a run are interrupted (`pkill
/// -INT`, Ctrl-C in a terminal), the launcher, our parent, forwards it too: one from it and one from others are one
/// request.
bool insists(const siginfo_t& info) noexcept {
  return (info.si_pid == ::getppid() ? interrupts.of_parent : interrupts.of_others)++ > 0;
}

extern "C" void note_signal(int signal, siginfo_t* info, void* /*context*/) {
  if (signal == SIGUSR2) {
    ++save_signals;
    return;
  }
  const Stop stop = stop_of(signal);
  const bool is_interrupt = signal == SIGINT;
  if (is_failing && !is_interrupt) return;
  const bool is_first_interrupt = is_interrupt && interrupts.of_parent == 0 && interrupts.of_others == 0;
  if (!is_noting || (is_interrupt && insists(*info))) leave(stop);
  if (is_first_interrupt && has_terminal && !is_saved) {
    say("\nCtrl-C: finishing the step at hand, then saving; once more to stop at once\n");
  }
  int before = noted;
  while (static_cast<int>(stop) > before && !noted.compare_exchange_weak(before, static_cast<int>(stop))) {
  }
}

/// Handles signals on a thread of its own. oneDNN matrix products point the stack pointer into heap memory while they
/// run, and a handler that interrupts one overwrites the data below. So block signals in all threads that compute: this
/// one and those that it starts.
void handle_on_own_thread(const sigset_t& signals) {
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    std::thread([signals] {
      pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
      while (true) ::pause();
    }).detach();
  } catch (const std::system_error&) {
    throw Error(ExitCode::environment,
                {.what = "cannot start a thread for signals", .hint = "raise the process limit (ulimit -u)"});
  }
}

}  // namespace

void watch_signals() {
  has_terminal = ::isatty(STDERR_FILENO) == 1;
  struct sigaction action {};
  action.sa_sigaction = note_signal;
  sigfillset(&action.sa_mask);  // handlers do not interrupt each other
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP}) {
    if (signal == SIGHUP && is_ignored(signal)) continue;  // under nohup a closed terminal must not stop the run
    sigaction(signal, &action, nullptr);
    sigaddset(&signals, signal);
  }
  handle_on_own_thread(signals);
  std::signal(SIGPIPE, SIG_IGN);  // training continues if the reader of our output exits
}

void note_signals() noexcept { is_noting = true; }

void note_failure() noexcept { is_failing = true; }

void note_saved() noexcept { is_saved = true; }

ExitCode exit_code_of(Stop stop) noexcept {
  if (stop == Stop::interrupted) return ExitCode::interrupted;
  if (stop == Stop::spent || stop == Stop::idle) return ExitCode::no_restart;
  return stop == Stop::terminated || stop == Stop::ordered ? ExitCode::terminated : ExitCode::restart;
}

Stop noted_stop() noexcept { return static_cast<Stop>(noted.load()); }

bool SaveRequests::pending() const {
  if (save_signals > served_signals_) return true;
  std::error_code unknown;
  return !file_.empty() && std::filesystem::is_regular_file(file_, unknown);  // a folder would request saves for ever
}

void SaveRequests::served() {
  served_signals_ = save_signals;
  std::error_code ignored;  // if the file cannot be removed, it requests again
  if (!file_.empty()) std::filesystem::remove(file_, ignored);
}

std::array<int64_t, kStopVotes> stop_votes(Stop own) noexcept {
  std::array<int64_t, kStopVotes> votes{};
  if (own != Stop::none) votes[static_cast<size_t>(own) - 1] = 1;
  return votes;
}

Stop agreed_stop(std::span<const int64_t> summed_votes) noexcept {
  for (size_t i = kStopVotes; i > 0; --i) {
    if (summed_votes[i - 1] > 0) return static_cast<Stop>(i);
  }
  return Stop::none;
}

StopPoll::StopPoll(comm::ProcessGroups& groups, StopReason own) : groups_(groups), own_(std::move(own)) {}

Stop StopPoll::next() {
  const Stop agreed = finish();
  const Stop own = own_ ? own_() : Stop::none;
  const auto votes = stop_votes(own <= Stop::early_stop ? Stop::none : own);
  votes_ = at::tensor(at::ArrayRef<int64_t>(votes), at::kLong);
  pending_ = groups_.control().all_reduce_sum(votes_, "agreement on a stop");
  return agreed;
}

Stop StopPoll::finish() {
  if (!votes_.defined()) return Stop::none;
  pending_.wait();
  agreed_ = std::max(agreed_, agreed_stop({votes_.const_data_ptr<int64_t>(), kStopVotes}));
  return agreed_;
}

}  // namespace gputrain::train

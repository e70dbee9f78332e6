// Helpers for signals and threads.
#pragma once

#include <csignal>

namespace gputrain {

/// Returns whether this process ignores the signal, for example SIGHUP under nohup.
inline bool is_ignored(int signal) noexcept {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

/// Threads created during its lifetime get no signals, so that signals reach the threads that handle or wait for them.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace gputrain

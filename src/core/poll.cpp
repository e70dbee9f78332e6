#include "gputrain/core/poll.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "gputrain/core/signals.hpp"

namespace gputrain {
namespace {

int open_signals(std::initializer_list<int> signals, sigset_t& before) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : signals) {
    if (signal == SIGHUP && is_ignored(signal)) continue;  // started under nohup: ignores a closed terminal
    sigaddset(&wanted, signal);
  }
  const int descriptor = ::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  pthread_sigmask(SIG_BLOCK, &wanted, &before);
  for (const int signal : signals) {
    // The parent may have started us in the background with the signal ignored; signalfd would never report it.
    if (sigismember(&wanted, signal) == 1 && is_ignored(signal)) std::signal(signal, SIG_DFL);
  }
  return descriptor;
}

}  // namespace

void Poll::add(int descriptor, short events) {
  if (descriptor >= 0) entries_.push_back({.fd = descriptor, .events = events, .revents = 0});
}

void Poll::wait() {
  int milliseconds = -1;
  if (latest_ != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(latest_ - Clock::now()).count();
    milliseconds = static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
  }
  if (::poll(entries_.data(), entries_.size(), milliseconds) < 0) {
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "poll");
    for (auto& entry : entries_) entry.revents = 0;
  }
}

bool Poll::is_ready(int descriptor) const {
  return descriptor >= 0 && std::ranges::any_of(entries_, [descriptor](const pollfd& entry) {
           return entry.fd == descriptor && entry.revents != 0;
         });
}

SignalReader::SignalReader(std::initializer_list<int> signals) : descriptor_(open_signals(signals, before_)) {}

SignalReader::~SignalReader() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> SignalReader::next() {
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace gputrain

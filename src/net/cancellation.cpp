#include "gputrain/net/cancellation.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <system_error>

#include "gputrain/core/error.hpp"
#include "gputrain/core/poll.hpp"

namespace gputrain::net {

Cancellation::Cancellation() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_.get() < 0) {
    throw Error(ExitCode::environment, {.what = "no event descriptor: " + std::generic_category().message(errno),
                                        .hint = "raise the limit of open files (ulimit -n)"});
  }
}

void Cancellation::cancel() noexcept { ::eventfd_write(descriptor_.get(), 1); }

bool Cancellation::wait(double seconds) const {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (true) {
    Poll poll;
    poll.add(descriptor());
    poll.wake_at(until);
    poll.wait();
    if (poll.is_ready(descriptor())) return true;
    if (Clock::now() >= until) return false;
  }
}

}  // namespace gputrain::net

#include "gputrain/core/acceptor.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "gputrain/core/log.hpp"

namespace gputrain {
namespace {

constexpr std::chrono::seconds kRest{1};

bool is_want_of_room(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

}  // namespace

Acceptor::Acceptor(int listener) : listener_(listener) {
  if (listener >= 0) ::fcntl(listener, F_SETFL, ::fcntl(listener, F_GETFL) | O_NONBLOCK);
}

void Acceptor::add_to(Poll& poll) const {
  if (Clock::now() < rests_until_)
    poll.wake_at(rests_until_);
  else
    poll.add(listener_.get());
}

int Acceptor::next() {
  if (listener_.get() < 0 || Clock::now() < rests_until_) return -1;
  const int taken = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (taken >= 0 || !is_want_of_room(errno)) return taken;
  const int error = errno;
  // The connection stays pending: without a pause, poll() would report it again and again.
  rests_until_ = Clock::now() + kRest;
  if (!std::exchange(has_told_, true)) {
    log::warning("cannot accept a connection: " + std::generic_category().message(error) +
                 "; retrying every second (see `ulimit -n`)");
  }
  return -1;
}

}  // namespace gputrain

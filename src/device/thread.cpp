#include "gputrain/device/thread.hpp"

#include <system_error>
#include <utility>

#include "gputrain/core/signals.hpp"
#include "gputrain/device/host_allocator.hpp"

namespace gputrain::device {

std::thread start_thread(std::function<void()> body) {
  const SignalsBlocked in_the_new_thread;
  try {
    return std::thread(body);
  } catch (const std::system_error&) {
    give_back_kept_blocks();
    return std::thread(std::move(body));
  }
}

}  // namespace gputrain::device

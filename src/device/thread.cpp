#include "gputrain/device/thread.hpp"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "gputrain/core/signals.hpp"
#include "gputrain/device/host_allocator.hpp"

namespace gputrain::device {

std::thread start_thread(const char* name, std::function<void()> body) {
  const SignalsBlocked in_the_new_thread;
  std::thread thread;
  try {
    thread = std::thread(body);
  } catch (const std::system_error&) {
    give_back_kept_blocks();
    thread = std::thread(std::move(body));
  }
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace gputrain::device

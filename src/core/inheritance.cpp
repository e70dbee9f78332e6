#include "gputrain/core/inheritance.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

namespace gputrain {

void mend_inheritance() {
  int descriptor = 0;  // the lowest free one, each time
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = ::open("/dev/null", O_RDWR);
  if (descriptor > STDERR_FILENO) ::close(descriptor);
  std::signal(SIGCHLD, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace gputrain

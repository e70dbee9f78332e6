#include "gputrain/core/inheritance.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

namespace gputrain {

void mend_inheritance() {
  int descriptor = 0;  // open() returns the lowest free number
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = ::open("/dev/null", O_RDWR);
  if (descriptor > STDERR_FILENO) ::close(descriptor);
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);  // a write past the size limit then fails, as on a full disk
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace gputrain

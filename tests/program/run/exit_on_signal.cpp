// Preloaded into a program: a signal ends it anywhere, with exit code 1 like a failure deep inside a library, with 138
// like ranks that agreed to restart, or with 0 like a finished rank.
#include <unistd.h>

#include <csignal>

namespace {

[[gnu::constructor]] void listen_for_it() {
  std::signal(SIGRTMIN + 5, [](int) { ::_exit(1); });
  std::signal(SIGRTMIN + 6, [](int) { ::_exit(138); });
  std::signal(SIGRTMIN + 7, [](int) { ::_exit(0); });
}

}  // namespace

// What is told of a child process.
#include "gputrain/launch/child.hpp"

#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gputrain::launch {
namespace {

/// A process with threads takes a moment to die. Then it has been continued no longer, and has not ended yet.
TEST(Child, IsToldTheSignalThatEndsItAsItContinues) {
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    Child child({.argv = {"python3", "-S", "-E", "-c",
                          "import threading, time\n"
                          "for i in range(8): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n"
                          "print(flush=True)\n"
                          "time.sleep(100)"},
                 .environment = {"PATH=/usr/bin:/bin"}});
    const int output = child.take_output();
    char newline = 0;
    ASSERT_EQ(::read(output, &newline, 1), 1);
    ::close(output);
    ::close(child.take_errors());
    ::kill(child.id(), SIGSTOP);
    siginfo_t news{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.id()), &news, WSTOPPED), 0);
    ::kill(child.id(), SIGTERM);
    const std::jthread other([id = child.id()] { ::kill(id, SIGCONT); });
    std::optional<ProcessStatus> status;
    while (!status || !status->is_end()) status = child.look();
    ASSERT_EQ(status->kind, ProcessStatus::Kind::killed);
    ASSERT_EQ(status->number, SIGTERM) << "round " << round;
  }
}

}  // namespace
}  // namespace gputrain::launch

// Makes a process for each request: a copy of this one that calls a main function.
#pragma once

#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "support/warm_request.hpp"

extern char** environ;

namespace gputrain::testing_support {

using Main = int (*)(int, char**, char**);

/// What glibc's fork() would do, but the process becomes a child of our parent, who can wait for it.
inline pid_t fork_sibling() {
  int* thread_id = nullptr;  // glibc's copy of it, and its list of locks
  void* locks = nullptr;
  size_t size = 0;
  if (::prctl(PR_GET_TID_ADDRESS, &thread_id, 0, 0, 0) != 0) return -1;
  ::syscall(SYS_get_robust_list, 0, &locks, &size);
  clone_args how{};
  how.flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
  how.child_tid = reinterpret_cast<uint64_t>(thread_id);
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
  if (pid == 0) ::syscall(SYS_set_robust_list, locks, size);
  return pid;
}

[[noreturn]] inline void become(WarmRequest& request, Main main) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a killed test leaves nothing
  for (size_t number = 0; number < request.streams.size(); ++number) ::dup2(request.streams[number], int(number));
  request.close();
  if (::chdir(request.words[0].c_str()) != 0) std::_Exit(127);
  std::vector<char*> arguments, variables;
  for (size_t i = 1; i < request.words.size(); ++i) {
    (i <= request.arguments ? arguments : variables).push_back(request.words[i].data());
  }
  arguments.push_back(nullptr);
  variables.push_back(nullptr);
  environ = variables.data();
  std::exit(main(static_cast<int>(request.arguments), arguments.data(), environ));
}

/// Answers requests until the socket ends: 0 says that it is ready, then it gives the number of each process, a child
/// of our parent.
[[noreturn]] inline void serve(int socket, Main main) {
  pid_t answer = 0;
  do {
    if (::write(socket, &answer, sizeof answer) != sizeof answer) break;
    WarmRequest request;
    if (!request.receive(socket)) break;
    answer = fork_sibling();
    if (answer == 0) {
      if (socket > STDERR_FILENO) ::close(socket);
      become(request, main);
    }
    request.close();
  } while (true);
  std::_Exit(0);
}

}  // namespace gputrain::testing_support

// Is preloaded into gputrain by warm_start.cpp. Loads LibTorch, then makes a process for each request: a copy of this
// one that calls the program's main(). Requests come over the socket that is stdin.
#include <dlfcn.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "support/warm_request.hpp"

namespace {

using gputrain::testing_support::WarmRequest;
using Main = int (*)(int, char**, char**);

Main program_main = nullptr;

/// What glibc's fork() would do, but the process becomes a child of our parent, who can wait for it.
pid_t fork_sibling() {
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

[[noreturn]] void become(WarmRequest& request) {
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
  std::exit(program_main(static_cast<int>(request.arguments), arguments.data(), environ));
}

int serve(int, char**, char**) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path library = program.parent_path().parent_path() / "lib/libgputrain.so";
  if (::dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr) return 1;
  pid_t answer = 0;  // the first says that it is loaded
  do {
    if (::write(STDIN_FILENO, &answer, sizeof answer) != sizeof answer) break;
    WarmRequest request;
    if (!request.receive(STDIN_FILENO)) break;
    answer = fork_sibling();
    if (answer == 0) become(request);
    request.close();
  } while (true);
  std::_Exit(0);
}

}  // namespace

extern "C" int __libc_start_main(Main main, int count, char** arguments, void (*init)(), void (*fini)(), void (*end)(),
                                 void* stack) {
  program_main = main;
  const auto real = reinterpret_cast<int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*)>(
      ::dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(serve, count, arguments, init, fini, end, stack);
}

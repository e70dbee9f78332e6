// Is preloaded into gputrain by warm_start.cpp. Loads LibTorch, then makes processes that call the program's main().
// Requests come over the socket that is stdin.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>

#include "support/warm_server.hpp"

namespace {

using gputrain::testing_support::Main;

Main program_main = nullptr;

int load_and_serve(int, char**, char**) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path library = program.parent_path().parent_path() / "lib/libgputrain.so";
  if (::dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr) return 1;
  gputrain::testing_support::serve(STDIN_FILENO, program_main);
}

}  // namespace

extern "C" int __libc_start_main(Main main, int count, char** arguments, void (*init)(), void (*fini)(), void (*end)(),
                                 void* stack) {
  program_main = main;
  const auto real = reinterpret_cast<int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*)>(
      ::dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(load_and_serve, count, arguments, init, fini, end, stack);
}

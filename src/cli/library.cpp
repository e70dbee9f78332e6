#include "library.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

/// Guard that shortens busy-waiting. libgomp threads busy-wait for milliseconds before they sleep. If another process
/// needs the core, they take it from the thread that they wait for. libgomp reads GOMP_SPINCOUNT when it is loaded with
/// LibTorch; 2000 is about the time to fall asleep and wake up.
class ShortSpinning {
 public:
  ShortSpinning() : is_ours_(std::getenv(kVariable) == nullptr && std::getenv("OMP_WAIT_POLICY") == nullptr) {
    if (is_ours_) ::setenv(kVariable, "2000", 1);
  }
  ~ShortSpinning() {
    if (is_ours_) ::unsetenv(kVariable);
  }
  ShortSpinning(const ShortSpinning&) = delete;
  ShortSpinning& operator=(const ShortSpinning&) = delete;

 private:
  static constexpr const char* kVariable = "GOMP_SPINCOUNT";
  bool is_ours_;
};

/// Ends the process where the destructors of LibTorch would begin, which take a fifth of the time of a short command.
/// What was made after LibTorch was loaded, by plug-ins for instance, has been destroyed by then.
void skip_destructors(int code, void* /*unused*/) {
  std::fflush(nullptr);
  ::_exit(code);
}

/// Returns whether something that was loaded before us may write its results at the end of the process: a sanitizer or
/// a profiler.
bool is_observed() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return std::getenv("LD_PRELOAD") != nullptr || std::getenv("CUDA_INJECTION64_PATH") != nullptr;
#endif
}

}  // namespace

const Verbs& library() {
  const ShortSpinning spinning;
  // RTLD_GLOBAL works as if the program were linked to it: LibTorch opens parts of itself, which need these symbols.
  void* opened = ::dlopen("libgputrain.so", RTLD_LAZY | RTLD_GLOBAL);
  const void* verbs = opened == nullptr ? nullptr : ::dlsym(opened, "gputrain_verbs");
  if (verbs == nullptr) {
    throw Error(ExitCode::environment, {.what = std::string("cannot open the library: ") + ::dlerror(),
                                        .hint = "libgputrain.so must be in ../lib relative to the program; LibTorch "
                                                "must be where it was at build time, or there too"});
  }
  if (!is_observed()) ::on_exit(skip_destructors, nullptr);
  const Verbs& found = *static_cast<const Verbs*>(verbs);
  found.check();
  return found;
}

}  // namespace gputrain::app

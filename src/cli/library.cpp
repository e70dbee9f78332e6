#include "library.hpp"

#include <dlfcn.h>

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
  const Verbs& found = *static_cast<const Verbs*>(verbs);
  found.check();
  return found;
}

}  // namespace gputrain::app

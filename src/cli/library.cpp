#include "library.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

/// GNU OpenMP's threads turn in circles for milliseconds before they sleep where there is nothing to do. On a core that
/// another process wants, that is taken from the thread they wait for. It is told how long they do so while LibTorch is
/// loaded, which brings it: about as long as it takes to fall asleep and be woken.
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
  // Global, as if the program were linked to it: LibTorch opens parts of itself by name and expects to be found.
  void* opened = ::dlopen("libgputrain.so", RTLD_LAZY | RTLD_GLOBAL);
  const void* verbs = opened == nullptr ? nullptr : ::dlsym(opened, "gputrain_verbs");
  if (verbs == nullptr) {
    throw Error(ExitCode::environment,
                {.what = std::string("cannot open the library: ") + ::dlerror(),
                 .hint = "it belongs into ../lib beside the program, LibTorch where it was built or beside it"});
  }
  const Verbs& found = *static_cast<const Verbs*>(verbs);
  found.check();
  return found;
}

}  // namespace gputrain::app

#include "library.hpp"

#include <dlfcn.h>

#include "gputrain/core/error.hpp"

namespace gputrain::app {

const Verbs& library() {
  // Global, as if the program were linked to it: LibTorch opens parts of itself by name and expects to be found.
  void* opened = ::dlopen("libgputrain.so", RTLD_LAZY | RTLD_GLOBAL);
  const void* verbs = opened == nullptr ? nullptr : ::dlsym(opened, "gputrain_verbs");
  if (verbs == nullptr) {
    throw Error(ExitCode::environment,
                {.what = std::string("cannot open the library: ") + ::dlerror(),
                 .hint = "it belongs into ../lib beside the program, LibTorch where it was built or beside it"});
  }
  return *static_cast<const Verbs*>(verbs);
}

}  // namespace gputrain::app

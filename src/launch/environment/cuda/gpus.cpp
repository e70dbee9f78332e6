#include "../gpus.hpp"

#include <dlfcn.h>

namespace gputrain::launch {
namespace {

// The driver's interface, the same for every toolkit: CUresult is an int, and 0 is success.
using Init = int (*)(unsigned flags);
using Count = int (*)(int* count);

template <class Function>
Function find(void* driver, const char* name) {
  return reinterpret_cast<Function>(::dlsym(driver, name));
}

}  // namespace

int gpus_here() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);  // never closed: the driver may have started threads
  if (driver == nullptr) return 0;
  const auto init = find<Init>(driver, "cuInit");
  const auto count = find<Count>(driver, "cuDeviceGetCount");
  int gpus = 0;
  return init != nullptr && count != nullptr && init(0) == 0 && count(&gpus) == 0 ? gpus : 0;
}

}  // namespace gputrain::launch

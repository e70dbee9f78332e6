#include "versions.hpp"

#include <torch/version.h>

#include "gputrain/device/runtime.hpp"

namespace gputrain::app {

std::string version() { return GPUTRAIN_VERSION; }

std::string versions_text() {
  return "gputrain " + version() + "\ntorch    " TORCH_VERSION "\nbuild    " +
         (device::built_with_cuda() ? "CPU and CUDA" : "CPU only") + ", GCC " __VERSION__ "\n";
}

}  // namespace gputrain::app

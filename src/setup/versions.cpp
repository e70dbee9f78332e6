#include "gputrain/setup/versions.hpp"

#include <torch/version.h>

#include "gputrain/device/runtime.hpp"
#include "gputrain/job/plugins.hpp"

namespace gputrain::app {

std::string torch_version() { return "torch " TORCH_VERSION; }

std::map<std::string, std::string> versions(at::Device device) {
  std::map<std::string, std::string> versions{{"gputrain", version()}, {"torch", TORCH_VERSION}};
  const std::string software = device::facts_of(device).software;
  if (!software.empty()) versions["device"] = software;
  for (const Plugin& plugin : plugins()) versions["plugin " + plugin.name] = plugin.build;
  return versions;
}

std::string versions_text() {
  return "gputrain " + version() + "\ntorch    " TORCH_VERSION "\nbuild    " +
         (device::built_with_cuda() ? "CPU and CUDA" : "CPU only") + ", GCC " __VERSION__ "\n";
}

}  // namespace gputrain::app

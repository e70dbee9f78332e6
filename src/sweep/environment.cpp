#include "environment.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

#include <unistd.h>

#include "gputrain/device/host.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::app {
namespace {

std::string gpu_of(size_t slot, const std::string& visible) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < visible.size();) {
    const size_t end = std::min(visible.find(',', begin), visible.size());
    names.push_back(visible.substr(begin, end - begin));
    begin = end + 1;
  }
  for (int gpu = 0; visible.empty() && gpu < device::gpu_count(); ++gpu) names.push_back(std::to_string(gpu));
  return names.empty() ? "" : names[slot % names.size()];
}

}  // namespace

std::vector<std::string> environment_of_slot(size_t slot, size_t slots, bool on_cpu) {
  std::map<std::string, std::string> variables;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string text = *one;
    variables[text.substr(0, text.find('='))] = text.substr(std::min(text.size(), text.find('=') + 1));
  }
  if (on_cpu && slots > 1) {
    const int64_t share = device::cpus_of_rank(static_cast<int>(slots));
    variables.try_emplace("OMP_NUM_THREADS", std::to_string(std::max<int64_t>(1, share)));
  } else if (!on_cpu) {
    variables["CUDA_VISIBLE_DEVICES"] = gpu_of(slot, variables["CUDA_VISIBLE_DEVICES"]);
  }
  std::vector<std::string> all;
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

}  // namespace gputrain::app

#include "device_memory.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::app {
namespace {

int64_t read_bytes(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  const std::string unit(rest + std::min<ptrdiff_t>(end - rest, *rest == ' '), end);
  for (const auto& [name, bytes] : {std::pair("MiB", 0x1p20), std::pair("GiB", 0x1p30), std::pair("TiB", 0x1p40),
                                    std::pair("MB", 1e6), std::pair("GB", 1e9), std::pair("TB", 1e12)}) {
    if (failure == std::errc() && unit == name && value > 0 && value < 1e6) return std::llround(value * bytes);
  }
  throw Error(ExitCode::usage, {.what = "--device-memory " + text + " is not a valid memory size",
                                .hint = "a number with MiB, GiB, TiB, MB, GB or TB: --device-memory 80GiB"});
}

}  // namespace

int64_t device_bytes(const std::string& text, const JobSpec& spec) {
  if (!text.empty()) return read_bytes(text);
  if (spec.device == "cpu" || device::gpu_count() == 0) return 0;
  return device::facts_of(device::choose_device("cuda", 0)).total_bytes;
}

}  // namespace gputrain::app

#include <mutex>

#include <ATen/Context.h>

#include "gputrain/core/error.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::device {

void seed_generators(at::Device device, uint64_t seed) {
  const auto seed_one = [seed](at::Device which) {
    at::Generator generator = at::globalContext().defaultGenerator(which);
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  };
  seed_one(at::kCPU);
  if (!device.is_cpu()) seed_one(device);
}

at::Tensor generator_state(at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(at::Device device, const at::Tensor& state) {
  const int64_t expected = generator_state(device).numel();
  if (!state.defined() || !state.device().is_cpu() || state.scalar_type() != at::kByte || state.dim() != 1 ||
      state.numel() != expected) {
    throw Error(ExitCode::checkpoint,
                {.what = "the saved random state does not fit a " + std::string(device.is_cpu() ? "CPU" : "GPU") +
                         " of this version (" + std::to_string(expected) + " bytes)",
                 .hint = "resume on the kind of device that saved the run"});
  }
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state.contiguous());
}

}  // namespace gputrain::device

#include "gputrain/device/runtime.hpp"

#include "gputrain/device/gpu_allocator.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "gputrain/device/offload.hpp"

namespace gputrain::device {

int gpu_count() { return 0; }
std::string gpu_obstacle() { return {}; }
bool built_with_cuda() noexcept { return false; }
at::Device current_gpu() { return at::kCPU; }
DeviceFacts facts_of(at::Device) {
  return {.name = cpu_name(), .software = "", .total_bytes = host_memory_bytes(), .uuid = ""};
}
void synchronize(at::Device) {}
bool is_capturing(at::Device) { return false; }
int64_t available_gpu_bytes(at::Device) { return 0; }
int64_t peak_allocated_bytes(at::Device) { return 0; }
void reset_peak_allocated_bytes(at::Device) {}
PeakExclusion::PeakExclusion(at::Device device) : device_(device) {}
PeakExclusion::~PeakExclusion() = default;
at::Tensor page_locked_bytes(int64_t) { return {}; }
void free_cached_memory(at::Device) {}
void release_unused(at::Device) {
  give_back_offload_memory();
  forget_host_peak();
}
void set_gpu_allocator(const std::string&) {}

}  // namespace gputrain::device

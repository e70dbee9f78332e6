#include "gputrain/device/out_of_memory.hpp"

#include <sys/resource.h>

#include <cmath>
#include <cstdlib>
#include <new>
#include <system_error>

#include <c10/util/Exception.h>

#include "gputrain/device/host.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::device {
namespace {

/// Returns the size in "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has ..."; 0 if the text has none.
int64_t requested_in(const std::string& text) {
  static const std::string kBefore = "Tried to allocate ";
  const size_t found = text.find(kBefore);
  if (found == std::string::npos) return 0;
  char* end = nullptr;
  const double value = std::strtod(text.c_str() + found + kBefore.size(), &end);
  const std::string unit = end;
  const int shift = unit.starts_with(" GiB") ? 30 : unit.starts_with(" MiB") ? 20 : unit.starts_with(" KiB") ? 10 : 0;
  return std::llround(std::ldexp(value, shift));
}

/// ATen's allocator has its own exception type. Allocations by CUDA and its libraries fail with other errors: contexts,
/// handles, kernels, instantiation of graphs, and the buffers that NCCL allocates at the first use of an algorithm.
bool is_shortage_of_gpu(const c10::Error& error, const std::string& text) {
  constexpr int32_t kMemoryAllocation = 2;  // cudaErrorMemoryAllocation
  const auto says = [&text](const char* words) { return text.find(words) != std::string::npos; };
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (const auto* call = dynamic_cast<const c10::AcceleratorError*>(&error))
    return call->get_error_code() == kMemoryAllocation;
  if (dynamic_cast<const c10::DistBackendError*>(&error) != nullptr)
    return says("'out of memory'") || says("Failed to CUDA malloc") || says("Failed to CUDA calloc");
  return says("_STATUS_ALLOC_FAILED");  // cuBLAS, cuDNN, cuSOLVER
}

}  // namespace

OutOfMemory::OutOfMemory(int64_t requested_bytes)
    : Error(ExitCode::environment, {.what = "out of memory: cannot allocate another " +
                                            std::to_string((requested_bytes + (1 << 20) - 1) >> 20) + " MiB",
                                    .hint = "a smaller model or batch, or a machine with more memory"}),
      requested_bytes_(requested_bytes) {}

OutOfMemory::~OutOfMemory() = default;

std::optional<Shortage> shortage_of(const std::exception& failure) {
  if (const auto* ours = dynamic_cast<const OutOfMemory*>(&failure)) return Shortage{ours->requested_bytes()};
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr) return Shortage{};
  if (const auto* error = dynamic_cast<const std::system_error*>(&failure)) {  // no memory for a thread's stack
    const bool is_shortage =
        error->code() == std::errc::resource_unavailable_try_again || error->code() == std::errc::not_enough_memory;
    if (is_shortage) return Shortage{};
  }
  if (const auto* error = dynamic_cast<const c10::Error*>(&failure)) {
    const std::string text = error->what_without_backtrace();
    if (is_shortage_of_gpu(*error, text)) return Shortage{.requested_bytes = requested_in(text), .on_gpu = true};
    if (text.find("DefaultCPUAllocator: can't allocate memory") != std::string::npos)
      return Shortage{requested_in(text)};
  }
  return std::nullopt;
}

MemoryReading read_memory(at::Device device) {
  if (!device.is_cpu()) {
    return {.peak_tensor_bytes = peak_allocated_bytes(device),
            .limit_bytes = facts_of(device).total_bytes,
            .limit = "of the GPU"};
  }
  MemoryReading reading{.peak_tensor_bytes = host_allocator_facts().peak_in_use_bytes,
                        .peak_process_bytes = peak_resident_bytes(),
                        .limit_bytes = host_memory_bytes(),
                        .limit = "of the machine or its container"};
  const auto consider = [&](auto resource, const char* name) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    if (static_cast<int64_t>(limit.rlim_cur) >= reading.limit_bytes) return;
    reading.limit_bytes = static_cast<int64_t>(limit.rlim_cur);
    reading.limit = name;
  };
  consider(RLIMIT_AS, "of address space by ulimit -v");
  consider(RLIMIT_DATA, "by ulimit -d");
  return reading;
}

}  // namespace gputrain::device

#include "wide_products.hpp"

#include <atomic>

#include "gputrain/device/host.hpp"
#include "gputrain/ops/frozen_linear.hpp"

namespace gputrain::ops {
namespace {

std::atomic<int> gpu_memory_scopes = 0;

}  // namespace

GpuMemoryScope::GpuMemoryScope() { ++gpu_memory_scopes; }
GpuMemoryScope::~GpuMemoryScope() { --gpu_memory_scopes; }

namespace cpu {
namespace {

constexpr int64_t kLeastRows = 64;  // fewer do not pay for a matrix in fp32

bool is_fp32_faster() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("amx-bf16")) return false;
  return !device::is_amd() || !__builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace

at::ScalarType product_type(const at::Tensor& rows) {
  static const bool is_faster = is_fp32_faster();
  const bool is_wide = is_faster && gpu_memory_scopes == 0 && rows.is_cpu() && rows.scalar_type() == at::kBFloat16 &&
                       rows.size(0) >= kLeastRows;
  return is_wide ? at::kFloat : rows.scalar_type();
}

}  // namespace cpu
}  // namespace gputrain::ops

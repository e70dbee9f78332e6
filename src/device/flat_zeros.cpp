#include "flat_zeros.hpp"

#include <algorithm>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>

#include "gputrain/device/out_of_memory.hpp"

namespace gputrain::device {
namespace {

/// Returns zeroed memory that takes no RAM before the first write. at::zeros writes every page at once, so an
/// optimizer's state would be resident before the first step.
at::Tensor untouched_zeros(int64_t numel, const at::TensorOptions& options) {
  const auto bytes = static_cast<size_t>(std::max<int64_t>(numel, 1)) * options.dtype().itemsize();
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw OutOfMemory(static_cast<int64_t>(bytes));
  // Huge pages, to reduce TLB misses: one pass over the flat buffers visits each address only once.
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  return at::from_blob(
      memory, {numel}, [bytes](void* begin) { ::munmap(begin, bytes); }, options);
}

}  // namespace

at::Tensor flat_zeros(int64_t numel, const at::TensorOptions& options) {
  return options.device().is_cpu() ? untouched_zeros(numel, options) : at::zeros({numel}, options);
}

}  // namespace gputrain::device

#include "batch_buffers.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>

namespace gputrain::data {
namespace {

std::vector<int64_t> batched(int64_t rows, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> all{rows};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

// Another handle counts on the tensor, a view or a saved tensor of autograd on the storage.
bool is_held_by_us_alone(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

}  // namespace

Destination BatchBuffers::destination() const {
  return {static_cast<std::byte*>(inputs.data_ptr()), targets.data_ptr<int64_t>()};
}

BufferPool::BufferPool(const SampleLayout& layout, int64_t rows, bool pinned)
    : input_sizes_(batched(rows, layout.input_sizes)),
      target_sizes_(batched(rows, layout.target_sizes)),
      input_type_(layout.input_type),
      pinned_(pinned) {}

BatchBuffers BufferPool::allocate() const {
  const auto options = at::TensorOptions().pinned_memory(pinned_);
  return {at::empty(input_sizes_, options.dtype(input_type_)), at::empty(target_sizes_, options.dtype(at::kLong))};
}

BatchBuffers BufferPool::get() {
  // torch's allocator of pinned memory knows which copies to the device are still under way; we do not.
  if (pinned_) return allocate();
  const auto free = std::find_if(lent_.begin(), lent_.end(), [](const BatchBuffers& buffers) {
    return is_held_by_us_alone(buffers.inputs) && is_held_by_us_alone(buffers.targets);
  });
  if (free != lent_.end()) return *free;
  lent_.push_back(allocate());
  return lent_.back();
}

}  // namespace gputrain::data

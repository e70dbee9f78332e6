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

BatchBuffers BufferPool::get() {
  const auto options = at::TensorOptions().pinned_memory(pinned_);
  return {inputs_.get(input_sizes_, options.dtype(input_type_)), targets_.get(target_sizes_, options.dtype(at::kLong))};
}

at::Tensor TensorPool::get(at::IntArrayRef sizes, const at::TensorOptions& options, at::MemoryFormat format) {
  // torch's allocator of pinned memory knows which copies to the device are still under way; we do not.
  if (options.pinned_memory()) return at::empty(sizes, options, format);
  const auto free = std::find_if(lent_.begin(), lent_.end(), [sizes](const at::Tensor& tensor) {
    return tensor.sizes() == sizes && is_held_by_us_alone(tensor);
  });
  if (free != lent_.end()) return *free;
  lent_.push_back(at::empty(sizes, options, format));
  return lent_.back();
}

}  // namespace gputrain::data

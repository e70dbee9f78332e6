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

// Checks both counts: tensor.use_count() counts handles, the storage's also views and autograd's saved tensors.
bool is_held_by_us_alone(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

}  // namespace

BatchMemory BatchBuffers::memory() const {
  BatchMemory memory;
  for (size_t i = 0; i < values.size(); ++i) {
    const at::Tensor& field = values[i];
    const auto rows = static_cast<size_t>(std::max<int64_t>(1, field.size(0)));
    memory.push_back({.values = static_cast<std::byte*>(field.data_ptr()),
                      .counts = counts[i].defined() ? counts[i].data_ptr<int64_t>() : nullptr,
                      .bytes = field.nbytes() / rows,
                      .element_bytes = static_cast<size_t>(field.element_size())});
  }
  return memory;
}

BufferPool::BufferPool(const SampleLayout& layout, int64_t rows, bool pinned) : pinned_(pinned) {
  for (const Field& field : layout.fields)
    fields_.push_back({.sizes = batched(rows, field.sizes), .type = field.type, .ragged = field.ragged});
}

BatchBuffers BufferPool::get() {
  const auto options = at::TensorOptions().pinned_memory(pinned_);
  BatchBuffers buffers;
  for (FieldPool& field : fields_) {
    buffers.values.push_back(field.values.get(field.sizes, options.dtype(field.type)));
    buffers.counts.push_back(field.ragged ? field.counts.get(field.sizes.front(), options.dtype(at::kLong))
                                          : at::Tensor());
  }
  return buffers;
}

at::Tensor TensorPool::get(at::IntArrayRef sizes, const at::TensorOptions& options, at::MemoryFormat format) {
  // Torch's pinned allocator tracks copies to the device that are still running; this pool does not.
  if (options.pinned_memory()) return at::empty(sizes, options, format);
  const auto free = std::find_if(lent_.begin(), lent_.end(), [sizes](const at::Tensor& tensor) {
    return tensor.sizes() == sizes && is_held_by_us_alone(tensor);
  });
  if (free != lent_.end()) return *free;
  lent_.push_back(at::empty(sizes, options, format));
  return lent_.back();
}

}  // namespace gputrain::data

#include "gputrain/device/staging.hpp"

#include <algorithm>
#include <bit>
#include <exception>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include "../first_line.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::device {
namespace {

constexpr int64_t kBytesApart = 512, kLargestBlock = int64_t{1} << 30;

int64_t aligned(int64_t bytes) { return ceil_divide(bytes, kBytesApart) * kBytesApart; }

}  // namespace

at::Tensor Staging::empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  const auto options = at::TensorOptions().dtype(type);
  const int64_t bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
  if (!is_refused_ && bytes > 0) {
    try {
      Block& block = block_with(bytes);
      auto* begin = block.bytes.mutable_data_ptr<uint8_t>() + block.used;
      block.used += aligned(bytes);
      expected_ = std::max<int64_t>(0, expected_ - aligned(bytes));
      return at::from_blob(
          begin, sizes, strides, [keeps = block.bytes](void*) {}, options);
    } catch (const std::exception& failure) {
      is_refused_ = true;
      log::warning(
          "no page-locked memory for copies of checkpoints (" + first_line(failure) +
          "): using ordinary memory, so each save stalls training for longer; check ulimit -l and the free memory");
    }
  }
  return at::empty_strided(sizes, strides, options);
}

/// Finds or makes a block. A new one is a power of two, so that the allocator does not round it up, and no larger than
/// the remaining bytes unless this request needs it.
Staging::Block& Staging::block_with(int64_t bytes) {
  const auto has_room = [bytes](const Block& block) { return block.bytes.numel() - block.used >= bytes; };
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), has_room);
  if (found != blocks_.end()) return *found;
  const auto least = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
  const auto most = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::min(expected_, kLargestBlock))));
  const auto options = at::TensorOptions().dtype(at::kByte).pinned_memory(true);
  blocks_.push_back({.bytes = at::empty({std::max(least, most)}, options)});
  return blocks_.back();
}

}  // namespace gputrain::device

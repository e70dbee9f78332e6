#include "gputrain/device/staging.hpp"

#include <exception>

#include <ATen/ops/empty_strided.h>

#include "first_line.hpp"
#include "gputrain/core/log.hpp"

namespace gputrain::device {

at::Tensor Staging::empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  const auto options = at::TensorOptions().dtype(type);
  if (!is_refused_) {
    try {
      return at::empty_strided(sizes, strides, options.pinned_memory(true));
    } catch (const std::exception& failure) {
      is_refused_ = true;
      log::warning(
          "no page-locked memory to copy a checkpoint into (" + first_line(failure) +
          "): ordinary memory is taken, and each save holds training up for longer; see ulimit -l, and what else "
          "holds memory here");
    }
  }
  return at::empty_strided(sizes, strides, options);
}

}  // namespace gputrain::device

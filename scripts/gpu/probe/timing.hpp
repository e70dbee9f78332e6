// Device times by CUDA events, and errors relative to a reference.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace probe {

/// Median time in milliseconds of `run` on the current stream, over `repeats` after `warmup` runs.
double median_ms(const std::function<void()>& run, int repeats = 20, int warmup = 3);

/// ||value - reference|| / ||reference|| in fp64.
double relative_error(const at::Tensor& value, const at::Tensor& reference);

/// A tensor on the GPU with normally distributed values of this deviation.
at::Tensor noise(at::IntArrayRef sizes, at::ScalarType dtype, double deviation = 1);

}  // namespace probe

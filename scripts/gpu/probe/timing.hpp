// Device times by CUDA events, and errors against a reference.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace probe {

/// Median over `repeats` of the milliseconds that `run` keeps the current stream busy, after `warmup` runs.
double median_ms(const std::function<void()>& run, int repeats = 20, int warmup = 3);

/// ||value - reference|| / ||reference|| in fp64.
double relative_error(const at::Tensor& value, const at::Tensor& reference);

/// A bf16 (or other) tensor on the GPU, normally distributed with this deviation.
at::Tensor noise(at::IntArrayRef sizes, at::ScalarType dtype, double deviation = 1);

}  // namespace probe

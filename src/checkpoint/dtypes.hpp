// Names of dtypes in safetensors files.
#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace gputrain::checkpoint {

/// The header parser lets through only dtypes that are known here.
at::ScalarType scalar_type_of(std::string_view dtype);
std::string dtype_of(at::ScalarType type);

/// Whether bytes are truth values as C++ has them.
bool are_truth_values(const char* data, size_t bytes) noexcept;

}  // namespace gputrain::checkpoint

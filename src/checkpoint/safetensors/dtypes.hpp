// Dtype names in safetensors files.
#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace gputrain::checkpoint {

/// Returns the type of a name. The header parser rejects dtypes that this does not know.
at::ScalarType scalar_type_of(std::string_view dtype);
std::string dtype_of(at::ScalarType type);

/// Returns whether every byte is 0 or 1, a valid C++ bool.
bool are_truth_values(const char* data, size_t bytes) noexcept;

}  // namespace gputrain::checkpoint

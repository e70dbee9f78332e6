// Numbers as files store them.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "gputrain/export/export.hpp"

namespace gputrain::app {

/// Converts the tensor to a type of LibTorch, on the CPU; for q8_0 to bf16, the next one in size. Throws Error(usage)
/// if a finite number is too large for the type; `name` is the tensor's in the message.
at::Tensor converted(const std::string& name, const at::Tensor& tensor, StoredType type);

/// Returns the bytes of a tensor on the CPU, in order.
std::string bytes_of(const at::Tensor& tensor);

/// Returns blocks of 32 numbers of a row: a 16-bit scale, the largest magnitude / 127, and the numbers divided by it.
/// Throws as converted() does if the scale is too large.
std::string q8_0_bytes(const std::string& name, const at::Tensor& tensor);

}  // namespace gputrain::app

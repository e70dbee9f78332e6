// Numbers as files store them.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "gputrain/export/export.hpp"

namespace gputrain::app {

/// The tensor in a type of LibTorch, on the CPU; for q8_0 in bf16, the next one in size. Throws Error(usage) if a
/// finite number is too large for the type; `name` is the tensor's in the message.
at::Tensor converted(const std::string& name, const at::Tensor& tensor, StoredType type);

/// The bytes of a tensor on the CPU, in order.
std::string bytes_of(const at::Tensor& tensor);

/// Blocks of 32 numbers of a row: a 16-bit scale, the largest magnitude / 127, and the numbers divided by it. Throws as
/// converted() does, where the scale is too large.
std::string q8_0_bytes(const std::string& name, const at::Tensor& tensor);

}  // namespace gputrain::app

// Common parts of the packings of bitsandbytes' files.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "gputrain/nn/packing.hpp"

namespace gputrain::nn {

/// Throws Error(data) for a tensor of a packed matrix.
[[noreturn]] void refuse_packed(const FileTensors& files, const std::string& name, const std::string& what);

/// Returns a tensor of a packed matrix. Throws Error(data) if it is missing, or of another type or size.
at::Tensor packed_tensor(const FileTensors& files, const std::string& name, at::ScalarType type, int64_t numel);

/// Returns "X." of the matrix "X.weight"; the matrix's name and a dot if it is named otherwise.
std::string layer_of(const std::string& matrix);

}  // namespace gputrain::nn

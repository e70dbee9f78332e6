// Products of bf16 matrices in fp32, on CPUs that are faster so.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cpu {

/// Returns the type in which to multiply these rows [rows, columns] with a matrix of any type: fp32 for many rows of
/// bf16 on a CPU without AMX, unless it is AMD's with bf16 units; else the rows' own. On a Xeon of 2024 without AMX,
/// products of a dense layer run at 275 GFLOP/s in fp32 and at 150 in bf16. This depends on the processor, not on a
/// measurement, so that a resumed run computes as before.
at::ScalarType product_type(const at::Tensor& rows);

}  // namespace gputrain::ops::cpu

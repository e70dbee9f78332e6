// Number formats of a job: one policy object that every layer receives at construction.
#pragma once

#include <optional>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace gputrain::ops {

enum class Precision { fp64, fp32, tf32, bf16, fp16 };

/// Parses "fp32", "bf16", ...; throws Error(usage) that lists the known names.
Precision precision_from_name(std::string_view name);

/// Tensor types of a precision. Parameters and optimizer state are stored in `master`. GEMM, convolution and attention
/// read operands in `compute` and accumulate in at least fp32. Norms, softmax and losses compute in at least fp32.
struct Policy {
  at::ScalarType master = at::kFloat;
  at::ScalarType compute = at::kFloat;
  bool loss_scaling = false;  // fp16: a GradScaler scales gradients
};

Policy policy_of(Precision precision) noexcept;

/// Returns the type of the working copy of the weights. None if layers read the weights themselves or, with
/// GPUTRAIN_KERNELS=aten, casts of them.
std::optional<at::ScalarType> working_type(const Policy& policy);

}  // namespace gputrain::ops

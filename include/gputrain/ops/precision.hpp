// Which number formats a job computes in: one policy object that every layer receives when it is built.
#pragma once

#include <optional>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace gputrain::ops {

enum class Precision { fp64, fp32, tf32, bf16, fp16 };

/// Reads "fp32", "bf16", ...; throws Error(usage) naming the known ones.
Precision precision_from_name(std::string_view name);

/// What a precision means for tensors. Parameters and optimizer state are kept in `master`; GEMM, convolution and
/// attention read operands in `compute` and accumulate at least in fp32; norms, softmax and losses compute in at
/// least fp32 whatever `compute` is.
struct Policy {
  at::ScalarType master = at::kFloat;
  at::ScalarType compute = at::kFloat;
  bool loss_scaling = false;  // fp16: gradients are scaled by a GradScaler
};

Policy policy_of(Precision precision) noexcept;

/// Of the copy of the weights that layers read; none where they read the weights themselves, or, with
/// GPUTRAIN_KERNELS=aten, casts of them.
std::optional<at::ScalarType> working_type(const Policy& policy);

}  // namespace gputrain::ops

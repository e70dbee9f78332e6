#include "gputrain/ops/precision.hpp"

#include <array>
#include <string>
#include <utility>

#include "dispatch/kernel_autotuner.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::ops {
namespace {

constexpr std::array<std::pair<std::string_view, Precision>, 5> kPrecisions{{{"fp64", Precision::fp64},
                                                                             {"fp32", Precision::fp32},
                                                                             {"tf32", Precision::tf32},
                                                                             {"bf16", Precision::bf16},
                                                                             {"fp16", Precision::fp16}}};

}  // namespace

Precision precision_from_name(std::string_view name) {
  for (const auto& [known, precision] : kPrecisions) {
    if (known == name) return precision;
  }
  std::string names;
  for (const auto& [known, precision] : kPrecisions) names += (names.empty() ? "" : ", ") + std::string(known);
  throw Error(ExitCode::usage, {.what = "unknown precision '" + std::string(name) + "'", .hint = "one of " + names});
}

Policy policy_of(Precision precision) noexcept {
  switch (precision) {
    case Precision::fp64:
      return {.master = at::kDouble, .compute = at::kDouble};
    case Precision::bf16:
      return {.compute = at::kBFloat16};
    case Precision::fp16:
      return {.compute = at::kHalf, .loss_scaling = true};
    case Precision::fp32:
    case Precision::tf32:
      break;  // the same types; tf32 is a mode of the GPU's matrix units
  }
  return {};
}

std::optional<at::ScalarType> working_type(const Policy& policy) {
  if (policy.compute == policy.master || takes_aten_only()) return std::nullopt;
  return policy.compute;
}

}  // namespace gputrain::ops

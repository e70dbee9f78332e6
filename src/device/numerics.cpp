#include "gputrain/device/numerics.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>

#include "gputrain/core/error.hpp"

namespace gputrain::device {
namespace {

// cuBLAS is repeatable only with a fixed workspace, and reads this variable when its first handle is made.
void fix_cublas_workspace() {
  constexpr const char* kVariable = "CUBLAS_WORKSPACE_CONFIG";
  const char* given = std::getenv(kVariable);
  if (given == nullptr) {
    ::setenv(kVariable, ":4096:8", 1);
    return;
  }
  const std::string value = given;
  if (value == ":4096:8" || value == ":16:8") return;
  throw Error(ExitCode::environment, {.what = "deterministic: true needs another cuBLAS workspace than " +
                                              std::string(kVariable) + "=" + value + " asks for",
                                      .hint = "unset it, or set it to :4096:8 or :16:8"});
}

std::vector<int64_t> attention_order() {
  std::vector<int64_t> order;
  for (const auto backend : {at::SDPBackend::cudnn_attention, at::SDPBackend::flash_attention,
                             at::SDPBackend::efficient_attention, at::SDPBackend::math, at::SDPBackend::overrideable}) {
    order.push_back(static_cast<int64_t>(backend));
  }
  return order;
}

}  // namespace

void apply(const Numerics& numerics) {
  if (numerics.deterministic) fix_cublas_workspace();
  at::Context& context = at::globalContext();
  // These two setters keep both of ATen's families of TF32 flags in step; setFloat32Precision would move only one, and
  // ATen throws where it finds them apart.
  context.setFloat32MatmulPrecision(numerics.tf32 ? "high" : "highest");
  context.setAllowTF32CuDNN(numerics.tf32);
  // 16-bit GEMMs may split the inner dimension, but add the parts in fp32.
  context.setAllowFP16ReductionCuBLAS(false, true);
  context.setAllowBF16ReductionCuBLAS(false, true);

  context.setDeterministicAlgorithms(numerics.deterministic, false);
  context.setDeterministicCuDNN(numerics.deterministic);
  // Filling every new tensor with NaN would only hunt for bugs.
  context.setDeterministicFillUninitializedMemory(false);
  // Trying kernels out picks by timing, and so differently from run to run.
  context.setBenchmarkCuDNN(!numerics.deterministic);

  context.setSDPUseCuDNN(true);
  context.setSDPUseFlash(true);
  context.setSDPUseMemEfficient(true);
  context.setSDPUseMath(true);
  context.setSDPPriorityOrder(attention_order());
}

}  // namespace gputrain::device

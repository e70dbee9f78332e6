#include "gputrain/device/numerics.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>

#include "gputrain/core/error.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::device {
namespace {

// cuBLAS is deterministic only with a fixed workspace size, and reads this variable when it creates its first handle.
void fix_cublas_workspace() {
  constexpr const char* kVariable = "CUBLAS_WORKSPACE_CONFIG";
  const char* given = std::getenv(kVariable);
  if (given == nullptr) {
    ::setenv(kVariable, ":4096:8", 1);
    return;
  }
  const std::string value = given;
  if (value == ":4096:8" || value == ":16:8") return;
  throw Error(ExitCode::environment,
              {.what = "deterministic: true does not work with " + std::string(kVariable) + "=" + value,
               .hint = "unset it, or set it to :4096:8 or :16:8"});
}

/// Returns the order of ways. cuDNN's is the fastest on the generations it was tuned for, and last on others, as in
/// PyTorch.
std::vector<int64_t> attention_order(at::Device device) {
  constexpr long kFirstTunedCudnn = 91501;
  const int generation = device.is_cuda() ? facts_of(device).generation : 0;
  const int major = generation / 10;
  const bool is_tuned = (major == 9 || major == 10) && at::Context::versionRuntimeCuDNN() >= kFirstTunedCudnn;
  std::vector<at::SDPBackend> order{at::SDPBackend::flash_attention, at::SDPBackend::efficient_attention,
                                    at::SDPBackend::math, at::SDPBackend::overrideable};
  order.insert(is_tuned ? order.begin() : order.begin() + 2, at::SDPBackend::cudnn_attention);
  std::vector<int64_t> numbers;
  for (const auto backend : order) numbers.push_back(static_cast<int64_t>(backend));
  return numbers;
}

}  // namespace

void apply(const Numerics& numerics, at::Device device) {
  if (numerics.deterministic) fix_cublas_workspace();
  at::Context& context = at::globalContext();
  // These two setters keep both families of TF32 flags in ATen consistent. setFloat32Precision would change only one,
  // and ATen throws if they differ.
  context.setFloat32MatmulPrecision(numerics.tf32 ? "high" : "highest");
  context.setAllowTF32CuDNN(numerics.tf32);
  // 16-bit GEMMs may use split-K, but must add the parts in fp32.
  context.setAllowFP16ReductionCuBLAS(false, true);
  context.setAllowBF16ReductionCuBLAS(false, true);

  context.setDeterministicAlgorithms(numerics.deterministic, false);
  context.setDeterministicCuDNN(numerics.deterministic);
  // Filling new tensors with NaN only helps to find bugs.
  context.setDeterministicFillUninitializedMemory(false);
  // cuDNN's benchmark mode chooses kernels by timing, so the choice differs between runs.
  context.setBenchmarkCuDNN(!numerics.deterministic);

  context.setSDPUseCuDNN(true);
  context.setSDPUseFlash(true);
  context.setSDPUseMemEfficient(true);
  context.setSDPUseMath(true);
  context.setSDPPriorityOrder(attention_order(device));
}

}  // namespace gputrain::device

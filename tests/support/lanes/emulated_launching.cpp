// CPU versions of the functions that launch kernels: kernels run on tensors in CPU memory.
#include "../../../src/ops/cuda/autograd/launching.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/mm.h>

#include <mutex>

#include "../../../src/ops/cuda/cublas/gemm.hpp"
#include "../../../src/ops/dispatch/gpu.hpp"
#include "../../../src/ops/dispatch/kernel_autotuner.hpp"
#include "ops/kernels/kernel_case.hpp"
#include "support/emulated_gemm.hpp"
#include "support/lanes/emulated_attention.hpp"

namespace gputrain::testing_support {
std::vector<int64_t> rows_of_products;
int emulated_capability = 0;
}

namespace gputrain::ops::cuda {

bool runs_kernels(const at::Tensor& tensor) { return tensor.is_cpu(); }
Stream current_stream() { return nullptr; }
int multiprocessors() { return 2; }
int major_capability() { return testing_support::emulated_capability; }
void check_launches() {}

Dropout drawn_dropout(double share) {
  const unsigned threshold = dropout_threshold(share);
  if (threshold == 0) return {};
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return {
      .threshold = threshold, .seed = at::check_generator<at::CPUGeneratorImpl>(generator)->random64(), .offset = 4};
}

/// Replaces cuBLASLt, in fp32.
void gemm(const GemmCall& p) {
  testing_support::rows_of_products.push_back(p.out.size(0));
  const at::Tensor product = at::mm(p.a.to(at::kFloat), p.b.to(at::kFloat));
  p.adds ? p.out.add_(product) : p.out.copy_(product);
  finish_by_aten(p);
}

}  // namespace gputrain::ops::cuda

namespace gputrain::ops {

/// Accepts every kernel with a correct result: times on a CPU mean nothing.
KernelAutotuner& kernel_autotuner() {
  static KernelAutotuner choice({.time_counts = false,
                                 .milliseconds =
                                     [](const std::function<void()>& work) {
                                       work();
                                       return 1.0;
                                     },
                                 .can_measure = [] { return true; }});
  return choice;
}

// grouped_linear() then gathers the matrices.
bool gpu::add_grouped_products(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return false;
}
at::Tensor gpu::grouped_products(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool) { return {}; }

}  // namespace gputrain::ops

namespace gputrain::testing_support {

at::Device kernel_device() { return at::kCPU; }
bool has_kernel_device() { return true; }

}  // namespace gputrain::testing_support

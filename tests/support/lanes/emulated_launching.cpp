// CPU versions of the functions that launch kernels: kernels run on tensors in CPU memory.
#include "../../../src/ops/cuda/autograd/launching.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <mutex>

#include "../../../src/ops/cuda/cublas/gemm.hpp"
#include "../../../src/ops/cuda/cudnn/gelu_product.hpp"
#include "../../../src/ops/dispatch/gpu.hpp"
#include "../../../src/ops/dispatch/kernel_autotuner.hpp"
#include "ops/kernels/kernel_case.hpp"
#include "support/emulated_gemm.hpp"
#include "support/lanes/emulated_attention.hpp"

namespace gputrain::testing_support {
std::vector<int64_t> rows_of_products;
std::vector<std::string> gelu_products;
bool gelu_products_are_refused = false;
ops::KernelAutotuner* other_autotuner = nullptr;
int emulated_capability = 0;
}  // namespace gputrain::testing_support

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

namespace {

const char* name_of(ActivationKind kind) { return kind == ActivationKind::gelu_tanh ? "tanh" : "none"; }

void note_product(ActivationKind kind) {
  if (testing_support::gelu_products_are_refused) throw NoKernel("as a test has it");
  testing_support::gelu_products.emplace_back(name_of(kind));
}

}  // namespace

// They replace cuDNN, which rounds results only.
void gelu_product(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias, ActivationKind kind,
                  const at::Tensor& before, const at::Tensor& after) {
  note_product(kind);
  const at::Tensor sum = at::mm(x.to(at::kFloat), matrix.to(at::kFloat)).add_(bias);
  before.copy_(sum);
  after.copy_(at::gelu(sum, name_of(kind)));
}

void gelu_gradient_product(const at::Tensor& dy, const at::Tensor& matrix, const at::Tensor& before,
                           ActivationKind kind, const at::Tensor& dbefore, const at::Tensor& sums) {
  note_product(kind);
  const at::Tensor dafter = at::mm(dy.to(at::kFloat), matrix.to(at::kFloat));
  const at::Tensor found = at::gelu_backward(dafter, before.to(at::kFloat), name_of(kind));
  dbefore.copy_(found);
  if (sums.defined()) sums.copy_(at::sum(found, {0}));
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
  return testing_support::other_autotuner == nullptr ? choice : *testing_support::other_autotuner;
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

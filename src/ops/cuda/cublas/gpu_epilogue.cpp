#include <cstdint>

#include <ATen/ops/gelu.h>
#include <ATen/ops/sum.h>

#include "gemm.hpp"

namespace gputrain::ops::cuda {

void finish_by_aten(const GemmCall& p) {
  const auto sums = [&](const at::Tensor& matrix, int64_t dim) {
    p.vector.copy_(at::sum(matrix, {dim}, /*keepdim=*/false, at::kFloat));
  };
  switch (p.epilogue) {
    case Epilogue::none:
      break;
    case Epilogue::bias:
      p.out.add_(p.vector);
      break;
    case Epilogue::bias_gelu_tanh:
      p.aux.copy_(p.out.add_(p.vector));
      p.out.copy_(at::gelu(p.aux, "tanh"));
      break;
    case Epilogue::sums_of_a:
      sums(p.a, 1);
      break;
    case Epilogue::sums_of_b:
      sums(p.b, 0);
      break;
  }
}

}  // namespace gputrain::ops::cuda

#include "gelu_product.hpp"

#include <cstdint>
#include <vector>

#include "../../dispatch/kernel_autotuner.hpp"
#include "../autograd/launching.hpp"
#include "cudnn_graph.hpp"

namespace gputrain::ops::cuda {
namespace {

ProductGraph graph_of(ProductGraph::Kind kind, const at::Tensor& rows, const at::Tensor& matrix, ActivationKind gelu) {
  return {.kind = kind,
          .element = element_of(rows),
          .rows = rows.size(0),
          .in = matrix.size(0),
          .out = matrix.size(1),
          .transposed = matrix.stride(1) != 1,
          .by_tanh = gelu == ActivationKind::gelu_tanh,
          .with_sums = false};
}

/// Returns the addresses of tensors. The plans expect each to be aligned to 16 bytes.
std::vector<void*> addresses_of(at::TensorList tensors) {
  std::vector<void*> addresses;
  for (const at::Tensor& tensor : tensors) {
    addresses.push_back(address_of(tensor));
    if (reinterpret_cast<uintptr_t>(addresses.back()) % 16 != 0) throw NoKernel("memory that is not aligned");
  }
  return addresses;
}

}  // namespace

void gelu_product(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias, ActivationKind kind,
                  const at::Tensor& before, const at::Tensor& after) {
  run_graph(graph_of(ProductGraph::Kind::gelu, x, matrix, kind), addresses_of({x, matrix, bias, before, after}),
            nullptr);
}

void gelu_gradient_product(const at::Tensor& dy, const at::Tensor& matrix, const at::Tensor& before,
                           ActivationKind kind, const at::Tensor& dbefore, const at::Tensor& sums) {
  ProductGraph graph = graph_of(ProductGraph::Kind::gradient, dy, matrix, kind);
  graph.with_sums = sums.defined();
  run_graph(graph, addresses_of({dy, matrix, before, dbefore}), sums.defined() ? write<float>(sums) : nullptr);
}

}  // namespace gputrain::ops::cuda

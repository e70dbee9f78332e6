#include <ATen/ops/embedding.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../../dispatch/gpu.hpp"
#include "../kernels/embedding.hpp"
#include "gputrain/core/error.hpp"
#include "gradient_place.hpp"
#include "launching.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& tokens) {
    context->save_for_backward({weight, tokens});
    return at::embedding(weight, tokens);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the embedding has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &weight = saved[0], dy = gradients[0].contiguous();
    const bool adds = has_place(weight);
    const at::Tensor dweight = adds ? weight.grad() : at::zeros_like(weight);
    const auto [tokens, positions] = at::sort(saved[1].flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
    embedding_gradient({.element = element_of(dy),
                        .count = tokens.numel(),
                        .rows = weight.size(0),
                        .channels = weight.size(1),
                        .tokens = read<int64_t>(tokens),
                        .positions = read<int64_t>(positions),
                        .dy = read(dy),
                        .weight_element = element_of(dweight),
                        .dweight = write(dweight),
                        .adds = adds},
                       current_stream());
    check_launches();
    return {adds ? at::Tensor() : dweight, {}};
  }
};

}  // namespace
}  // namespace cuda

namespace gpu {

OpImpl embedding(const at::Tensor& weight, const at::Tensor& tokens) {
  const at::ScalarType type = weight.scalar_type();
  const bool takes = is_here(weight) && (type == at::kFloat || type == at::kBFloat16) && weight.is_contiguous() &&
                     tokens.scalar_type() == at::kLong && tokens.numel() > 0;
  if (!takes) return {};
  return [](const Tensors& t) { return Tensors{cuda::EmbeddingFunction::apply(t[0], t[1])}; };
}

}  // namespace gpu
}  // namespace gputrain::ops

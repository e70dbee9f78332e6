#include <cstdint>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../../dispatch/gpu.hpp"
#include "../kernels/max_pool.hpp"
#include "gputrain/core/error.hpp"
#include "launching.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Describes a pool without its tensors.
MaxPool pool_of(Element element, at::IntArrayRef sizes) {
  return {.element = element,
          .batch = sizes[0],
          .height = sizes[2],
          .width = sizes[3],
          .channels = sizes[1],
          .x = nullptr,
          .y = nullptr,
          .index = nullptr,
          .dy = nullptr,
          .dx = nullptr};
}

struct Pooling : torch::autograd::Function<Pooling> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const at::Tensor y = at::empty({x.size(0), x.size(1), (x.size(2) + 1) / 2, (x.size(3) + 1) / 2}, x.options(),
                                   at::MemoryFormat::ChannelsLast);
    const at::Tensor index = at::empty_like(y, y.options().dtype(at::kChar));
    MaxPool pool = pool_of(element_of(x), x.sizes());
    pool.x = read(x);
    pool.y = write(y);
    pool.index = write<int8_t>(index);
    max_pool_forward(pool, current_stream());
    check_launches();
    context->save_for_backward({index});  // not x, only its sizes: its memory can be freed
    context->saved_data["sizes"] = x.sizes();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused pooling has no second derivative");
    const auto sizes = context->saved_data["sizes"].toIntVector();
    const at::Tensor index = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor dx = at::empty(sizes, dy.options(), at::MemoryFormat::ChannelsLast);
    MaxPool pool = pool_of(element_of(dy), sizes);
    pool.index = write<int8_t>(index);
    pool.dy = read(dy);
    pool.dx = write(dx);
    max_pool_backward(pool, current_stream());
    check_launches();
    return {dx};
  }
};

}  // namespace
}  // namespace cuda

namespace gpu {

OpImpl max_pool(const at::Tensor& x, int64_t kernel, int64_t stride, int64_t padding) {
  const bool takes = is_here(x) && x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast) && kernel == 3 &&
                     stride == 2 && padding == 1;
  if (!takes || x.size(0) * x.size(2) * x.size(3) > INT32_MAX) return {};
  return [](const Tensors& t) { return Tensors{cuda::Pooling::apply(t[0])}; };
}

}  // namespace gpu
}  // namespace gputrain::ops

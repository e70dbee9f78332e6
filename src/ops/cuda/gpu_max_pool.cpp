#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../gpu.hpp"
#include "gputrain/core/error.hpp"
#include "launching.hpp"
#include "max_pool.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

MaxPool pool_of(const at::Tensor& x) {
  return {.element = element_of(x),
          .batch = x.size(0),
          .height = x.size(2),
          .width = x.size(3),
          .channels = x.size(1),
          .x = read(x),
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
    MaxPool pool = pool_of(x);
    pool.y = write(y);
    pool.index = write<int8_t>(index);
    max_pool_forward(pool, current_stream());
    check_launches();
    context->save_for_backward({x, index});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused pooling has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous(at::MemoryFormat::ChannelsLast), dx = at::empty_like(saved[0]);
    MaxPool pool = pool_of(saved[0]);
    pool.index = write<int8_t>(saved[1]);
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

Way max_pool(const at::Tensor& x, int64_t kernel, int64_t stride, int64_t padding) {
  const bool takes = is_here(x) && x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast) && kernel == 3 &&
                     stride == 2 && padding == 1;
  if (!takes) return {};
  return [](const Tensors& t) { return Tensors{cuda::Pooling::apply(t[0])}; };
}

}  // namespace gpu
}  // namespace gputrain::ops

// silu(gate) up, forward and backward.
// Registers: gated_forward_kernel 48, gated_backward_kernel 64
#include "activation.hpp"

#include "columns.cuh"

namespace gputrain::ops::cuda {
namespace {

template <class T, int kVector>
__global__ void __launch_bounds__(kColumnThreads) gated_forward_kernel(GatedRows p) {
  const ColumnWalk<kVector> walk(p.rows, p.width);
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    const int64_t place = row * p.stride + walk.column;
    float gate[kVector], up[kVector];
    load(static_cast<const T*>(p.gate) + place, gate);
    load(static_cast<const T*>(p.up) + place, up);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) up[k] *= __fdividef(gate[k], 1.0F + __expf(-gate[k]));
    store(static_cast<T*>(p.y) + row * p.width + walk.column, up);
  }
}

template <class T, int kVector>
__global__ void __launch_bounds__(kColumnThreads) gated_backward_kernel(GatedRows p) {
  const ColumnWalk<kVector> walk(p.rows, p.width);
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    const int64_t place = row * p.stride + walk.column;
    float gate[kVector], up[kVector], dy[kVector];
    load(static_cast<const T*>(p.gate) + place, gate);
    load(static_cast<const T*>(p.up) + place, up);
    load(static_cast<const T*>(p.dy) + row * p.width + walk.column, dy);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      const float share = __fdividef(1.0F, 1.0F + __expf(-gate[k]));
      const float dgate = dy[k] * up[k] * share * (1 + gate[k] * (1 - share));
      up[k] = dy[k] * gate[k] * share;
      gate[k] = dgate;
    }
    const int64_t to = row * p.gradient_stride + walk.column;
    store(static_cast<T*>(p.dgate) + to, gate);
    store(static_cast<T*>(p.dup) + to, up);
  }
}

void run(const GatedRows& p, bool forward, Stream stream) {
  with_type(p.element, [&](auto type) {
    using T = decltype(type);
    constexpr int kVector = kPackOf<T>;
    const bool packed = p.stride % kVector == 0 && p.gradient_stride % kVector == 0 &&
                        (forward ? is_packed(p.width, kVector, p.gate, p.up, p.y)
                                 : is_packed(p.width, kVector, p.gate, p.up, p.dy, p.dgate, p.dup));
    const ColumnGrid grid = column_grid(p.width, packed ? kVector : 1, p.parts);
    const auto kernel = forward ? (packed ? gated_forward_kernel<T, kVector> : gated_forward_kernel<T, 1>)
                                : (packed ? gated_backward_kernel<T, kVector> : gated_backward_kernel<T, 1>);
    launch(kernel, grid.blocks, grid.threads, stream, p);
  });
}

}  // namespace

void gated_forward(const GatedRows& p, Stream stream) { run(p, true, stream); }
void gated_backward(const GatedRows& p, Stream stream) { run(p, false, stream); }

}  // namespace gputrain::ops::cuda

// GELU (Hendrycks and Gimpel, arXiv:1606.08415) exact and by tanh, and SiLU.
// Registers: activation_forward_kernel 48, activation_backward_kernel 64
#include "activation.hpp"

#include "columns.cuh"

namespace gputrain::ops::cuda {
namespace {

__device__ inline float logistic(float x) { return __fdividef(1.0F, 1.0F + __expf(-x)); }

constexpr float kRootTwoOverPi = 0.7978845608028654F, kCubic = 0.044715F;
constexpr float kRootHalf = 0.7071067811865476F, kRootHalfOverPi = 0.3989422804014327F;

/// Value and slope of a curve at x. tanh(u) is 2 logistic(2 u) - 1: one exponential, and exact far from 0.
struct Point {
  float value, slope;
};
template <class T, ActivationKind kActivation>
__device__ Point point_at(float x) {
  if constexpr (kActivation == ActivationKind::gelu) {
    // erfcf keeps its digits far below 0. 16 bits cannot hold them, and erff costs half as much.
    const float share = 0.5F * (sizeof(T) == 4 ? erfcf(-x * kRootHalf) : 1.0F + erff(x * kRootHalf));
    return {x * share, share + x * kRootHalfOverPi * __expf(-0.5F * x * x)};
  } else if constexpr (kActivation == ActivationKind::gelu_tanh) {
    const float share = logistic(2 * kRootTwoOverPi * x * (1 + kCubic * x * x));
    const float steepness = 2 * kRootTwoOverPi * (1 + 3 * kCubic * x * x);
    return {x * share, share + x * share * (1 - share) * steepness};
  } else {
    const float share = logistic(x);
    return {x * share, share * (1 + x * (1 - share))};
  }
}

template <class T, int kVector, ActivationKind kActivation>
__global__ void __launch_bounds__(kColumnThreads) activation_forward_kernel(ActivationRows p) {
  const ColumnWalk<kVector> walk(p.rows, p.width);
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    float x[kVector];
    load(static_cast<const T*>(p.x) + row * p.width + walk.column, x);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) x[k] = point_at<T, kActivation>(x[k]).value;
    store(static_cast<T*>(p.y) + row * p.width + walk.column, x);
  }
}

template <class T, int kVector, ActivationKind kActivation, bool kSums>
__global__ void __launch_bounds__(kColumnThreads) activation_backward_kernel(ActivationRows p) {
  const ColumnWalk<kVector> walk(p.rows, p.width);
  float sums[kVector] = {};
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    const int64_t place = row * p.width + walk.column;
    float x[kVector], dx[kVector];
    load(static_cast<const T*>(p.x) + place, x);
    load(static_cast<const T*>(p.dy) + place, dx);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      dx[k] *= point_at<T, kActivation>(x[k]).slope;
      if constexpr (kSums) sums[k] += dx[k];
    }
    store(static_cast<T*>(p.dx) + place, dx);
  }
  if constexpr (kSums) write_column_sums(sums, walk.column, p.width, p.partials + block_y() * p.width);
}

template <class Visit>
void with_activation(ActivationKind kind, const Visit& visit) {
  switch (kind) {
    case ActivationKind::gelu:
      return visit(Number<static_cast<int>(ActivationKind::gelu)>{});
    case ActivationKind::gelu_tanh:
      return visit(Number<static_cast<int>(ActivationKind::gelu_tanh)>{});
    case ActivationKind::silu:
      return visit(Number<static_cast<int>(ActivationKind::silu)>{});
  }
}

template <class T, int kVector, ActivationKind kActivation>
void launch_activation(const ActivationRows& p, bool forward, Stream stream) {
  const ColumnGrid grid = column_grid(p.width, kVector, p.parts);
  const auto backward = p.partials != nullptr ? activation_backward_kernel<T, kVector, kActivation, true>
                                              : activation_backward_kernel<T, kVector, kActivation, false>;
  launch(forward ? activation_forward_kernel<T, kVector, kActivation> : backward, grid.blocks, grid.threads, stream, p);
}

void run(const ActivationRows& p, bool forward, Stream stream) {
  with_type(p.element, [&](auto type) {
    with_activation(p.kind, [&](auto kind) {
      using T = decltype(type);
      constexpr auto kActivation = static_cast<ActivationKind>(decltype(kind)::value);
      if (is_packed(p.width, kPackOf<T>, p.x, forward ? p.y : p.dy, forward ? p.y : p.dx, p.partials)) {
        return launch_activation<T, kPackOf<T>, kActivation>(p, forward, stream);
      }
      launch_activation<T, 1, kActivation>(p, forward, stream);
    });
  });
}

}  // namespace

void activation_forward(const ActivationRows& p, Stream stream) { run(p, true, stream); }
void activation_backward(const ActivationRows& p, Stream stream) { run(p, false, stream); }

}  // namespace gputrain::ops::cuda

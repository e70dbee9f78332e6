// One block sums the rows of each token in a fixed order: the block at the first of a run of equal tokens.
// Registers: embedding_gradient_kernel 64
#include "embedding.hpp"

#include "columns.cuh"

namespace gputrain::ops::cuda {
namespace {

template <class T, class Summed, int kVector>
__global__ void __launch_bounds__(kColumnThreads) embedding_gradient_kernel(EmbeddingGradient p) {
  const int64_t begin = block_x(), token = p.tokens[begin];
  if (begin > 0 && p.tokens[begin - 1] == token) return;  // the whole block returns: another block sums this token
  const int64_t column = (static_cast<int64_t>(block_y()) * threads_x() + thread_x()) * kVector;
  float sum[kVector] = {};
  GPUTRAIN_UNROLL_4
  for (int64_t i = begin + thread_y(); i < p.count && p.tokens[i] == token; i += threads_y()) {
    if (column >= p.channels) continue;
    float dy[kVector];
    load(static_cast<const T*>(p.dy) + p.positions[i] * p.channels + column, dy);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) sum[k] += dy[k];
  }
  Summed* const to = static_cast<Summed*>(p.dweight) + token * p.channels;
  if (p.adds && thread_y() == 0 && column < p.channels) {
    float held[kVector];
    load_sums(to + column, held);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) sum[k] += held[k];
  }
  write_column_sums(sum, column, p.channels, to);
}

}  // namespace

void embedding_gradient(const EmbeddingGradient& p, Stream stream) {
  const auto start = [&](auto type, auto sums) {
    using T = decltype(type);
    using Summed = decltype(sums);
    constexpr int kVector = kPackOf<T>;
    const bool packed = is_packed(p.channels, kVector, p.dy, p.dweight);
    const ColumnGrid grid = column_grid(p.channels, packed ? kVector : 1, 1);
    const dim3 blocks{extent(p.count), grid.blocks.x, 1};
    launch(packed ? embedding_gradient_kernel<T, Summed, kVector> : embedding_gradient_kernel<T, Summed, 1>, blocks,
           grid.threads, stream, p);
  };
  if (p.weight_element == Element::bf16) return start(Bf16{}, Bf16{});
  with_type(p.element, [&](auto type) { start(type, float{}); });
}

}  // namespace gputrain::ops::cuda

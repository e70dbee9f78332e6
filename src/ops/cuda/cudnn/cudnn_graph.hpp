// What cuDNN does as one graph: convolutions of channels-last images together with sums over what they give, and
// attention. Plans are found where a graph is first met, by trying some on its tensors, and kept in files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../kernels/kernels.hpp"

namespace gputrain::ops::cuda {

/// What makes a graph the one it is. Tensors are of type `element`, what is per channel is fp32.
struct ConvGraph {
  /// sums: x, weight -> y; of each of its channels the sum and the sum of squares.
  /// gradient_sums: dy, weight, z, mean, scale, shift -> g, which is the gradient of x where z scale + shift is above
  /// 0; of each of its channels the sum and the sum of g (z - mean). z is shaped as x.
  enum class Kind { sums, gradient_sums };

  Kind kind = Kind::sums;
  Element element = Element::bf16;
  int64_t images = 0, in = 0, height = 0, width = 0, out = 0, kernel = 1, stride = 1, padding = 0;  // of x and weight
  bool deterministic = false;  // the same input gives the same bits, and no clock decides between plans

  int64_t height_out() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t width_out() const { return (width + 2 * padding - kernel) / stride + 1; }
  std::string key() const;
};

/// Attention on heads that are packed: queries, keys and values, and their gradients, are parts of
/// [batch, time, (heads + 2 key_heads) channels].
struct AttentionGraph {
  /// forward: queries, keys, values -> y [batch, time, heads channels], in fp32 the logarithms of the sums of
  /// exponentials [batch, heads, time].
  /// gradient: queries, keys, values, y, dy, these logarithms -> the gradients of the first three.
  enum class Kind { forward, gradient };

  Kind kind = Kind::forward;
  Element element = Element::bf16;
  int64_t batch = 0, time = 0, heads = 0, key_heads = 0, channels = 0;  // channels: of one head
  bool causal = true;
  float scale = 1;
  bool deterministic = false;

  int64_t packed_channels() const { return (heads + 2 * key_heads) * channels; }
  std::string key() const;
};

/// Runs it on the current stream; `tensors` in the order of the kind's description, `sums` [2, channels] for both sums.
/// Throws NoKernel where cuDNN has no plan.
void run_graph(const ConvGraph& graph, const std::vector<void*>& tensors, float* sums);
/// The same; `tensors` are where each of the description begins.
void run_graph(const AttentionGraph& graph, const std::vector<void*>& tensors);

}  // namespace gputrain::ops::cuda

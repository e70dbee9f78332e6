// Work that cuDNN does as one graph: convolutions of channels-last images with sums over their results, and attention.
// The first time a graph occurs, some plans are tried on its tensors; the chosen plan is stored in a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../kernels/kernels.hpp"

namespace gputrain::ops::cuda {

/// Identifies a graph. Tensors have the type `element`; values per channel are fp32.
struct ConvGraph {
  /// sums: x, weight -> y; for each channel of y, the sum and the sum of squares.
  /// gradient_sums: dy, weight, z, mean, scale, shift -> g, which is the gradient of x where z scale + shift > 0, else
  /// 0; for each channel of g, the sum and the sum of g (z - mean). z has the shape of x.
  enum class Kind { sums, gradient_sums };

  Kind kind = Kind::sums;
  Element element = Element::bf16;
  int64_t images = 0, in = 0, height = 0, width = 0, out = 0, kernel = 1, stride = 1, padding = 0;  // of x, weight
  bool deterministic = false;  // the same input gives the same bits, and plans are not timed

  int64_t height_out() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t width_out() const { return (width + 2 * padding - kernel) / stride + 1; }
  std::string key() const;
};

/// Attention on packed heads: queries, keys and values, and their gradients, are parts of [batch, time, (heads + 2
/// key_heads) channels].
struct AttentionGraph {
  /// forward: queries, keys, values -> y [batch, time, heads channels], and in fp32 the logarithms of the sums of
  /// exponentials [batch, heads, time].
  /// gradient: queries, keys, values, y, dy, these logarithms -> the gradients of queries, keys and values.
  enum class Kind { forward, gradient };

  Kind kind = Kind::forward;
  Element element = Element::bf16;
  int64_t batch = 0, time = 0, heads = 0, key_heads = 0, channels = 0;  // channels: per head
  bool causal = true;
  float scale = 1;
  bool deterministic = false;

  int64_t packed_channels() const { return (heads + 2 * key_heads) * channels; }
  std::string key() const;
};

/// Attention within texts whose rows follow each other. The sizes are upper limits and the true ones lie on the device,
/// so that few plans serve all batches.
struct TextsGraph {
  /// forward: queries, keys, values, lengths, five offsets -> y, logarithms.
  /// gradient: queries, keys, values, lengths, five offsets, y, dy, logarithms, the offsets of the gradients of keys
  /// and values -> the gradients of queries, keys and values. Lengths are int32 [texts], 0 behind the last text.
  /// Offsets are int64 [texts + 1], in elements, where each text begins in: queries, keys, values, y, logarithms.
  /// Results have rows without gaps: y [rows, heads channels], in fp32 the logarithms of the sums of exponentials
  /// [rows, heads].
  using Kind = AttentionGraph::Kind;

  Kind kind = Kind::forward;
  Element element = Element::bf16;
  int64_t texts = 0, longest = 0, rows = 0;           // rows: of all texts
  int64_t heads = 0, key_heads = 0, channels = 0;     // channels: per head
  int64_t query_row = 0, key_row = 0, value_row = 0;  // elements between rows of queries, keys and values
  bool causal = true;
  int64_t window = 0;  // a query attends to keys less than so many rows away; 0: no limit
  float scale = 1;
  bool deterministic = false;

  std::string key() const;
};

/// The product of a matrix [rows, in] and one [in, out], with GELU or its gradient in the same kernel.
struct ProductGraph {
  /// gelu: x, matrix, bias [out] -> before = x matrix + bias, after = gelu(before).
  /// gradient: dy, matrix, before [rows, out] -> the gradient of what GELU was computed from; with_sums: and in fp32 the
  /// sums of its columns.
  enum class Kind { gelu, gradient };

  Kind kind = Kind::gelu;
  Element element = Element::bf16;
  int64_t rows = 0, in = 0, out = 0;
  bool transposed = false;  // the matrix lies in memory as [out, in]
  bool by_tanh = false;
  bool with_sums = false;

  std::string key() const;
};

/// Runs the graph on the current stream. `tensors` in the order of the kind's description; `sums` [2, channels]
/// receives both sums. Throws NoKernel if cuDNN has no plan.
void run_graph(const ConvGraph& graph, const std::vector<void*>& tensors, float* sums);
/// Runs in the same way; `tensors` are the addresses of the description's tensors.
void run_graph(const AttentionGraph& graph, const std::vector<void*>& tensors);
void run_graph(const TextsGraph& graph, const std::vector<void*>& tensors);
/// Runs the graph; `sums` [out], or nullptr without sums.
void run_graph(const ProductGraph& graph, const std::vector<void*>& tensors, float* sums);

}  // namespace gputrain::ops::cuda

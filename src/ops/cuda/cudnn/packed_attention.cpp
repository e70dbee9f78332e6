#include "packed_attention.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "../autograd/launching.hpp"
#include "cudnn_graph.hpp"

namespace gputrain::ops::cuda {
namespace {

AttentionGraph attention_graph(AttentionGraph::Kind kind, const at::Tensor& packed, const PackedAttention& attention) {
  return {.kind = kind,
          .element = element_of(packed),
          .batch = packed.size(0),
          .time = packed.size(1),
          .heads = attention.heads,
          .key_heads = attention.key_heads,
          .channels = packed.size(2) / (attention.heads + 2 * attention.key_heads),
          .causal = attention.causal,
          .scale = static_cast<float>(attention.scale),
          .deterministic = at::globalContext().deterministicAlgorithms()};
}

/// Addresses of queries, keys and values.
std::vector<void*> parts_of(const at::Tensor& packed, const AttentionGraph& graph) {
  const auto part = [&](int64_t head) {
    return static_cast<std::byte*>(address_of(packed)) +
           head * graph.channels * static_cast<int64_t>(packed.element_size());
  };
  return {part(0), part(graph.heads), part(graph.heads + graph.key_heads)};
}

}  // namespace

Attended packed_attention(const at::Tensor& packed, const PackedAttention& attention) {
  const AttentionGraph graph = attention_graph(AttentionGraph::Kind::forward, packed, attention);
  const Attended found{
      .y = at::empty({graph.batch, graph.time, graph.heads * graph.channels}, packed.options()),
      .logarithms = at::empty({graph.batch, graph.heads, graph.time}, packed.options().dtype(at::kFloat))};
  std::vector<void*> tensors = parts_of(packed, graph);
  tensors.insert(tensors.end(), {address_of(found.y), address_of(found.logarithms)});
  run_graph(graph, tensors);
  return found;
}

at::Tensor packed_attention_gradient(const at::Tensor& packed, const PackedAttention& attention, const Attended& found,
                                     const at::Tensor& dy) {
  const AttentionGraph graph = attention_graph(AttentionGraph::Kind::gradient, packed, attention);
  const at::Tensor gradient = at::empty_like(packed);
  std::vector<void*> tensors = parts_of(packed, graph);
  tensors.insert(tensors.end(), {address_of(found.y), address_of(dy), address_of(found.logarithms)});
  const std::vector<void*> gradients = parts_of(gradient, graph);
  tensors.insert(tensors.end(), gradients.begin(), gradients.end());
  run_graph(graph, tensors);
  return gradient;
}

}  // namespace gputrain::ops::cuda

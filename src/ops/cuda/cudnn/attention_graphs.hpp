// The attention graphs of cudnn_graph.hpp in cuDNN's API; conv_graphs.hpp has the convolution graphs.
#pragma once

#include "cudnn_graph.hpp"
#include "numbered_graph.hpp"

namespace gputrain::ops::cuda {

class GraphOfAttention : public NumberedGraph {
 public:
  explicit GraphOfAttention(const AttentionGraph& attention) : NumberedGraph(attention.element), attention_(attention) {
    attention.kind == AttentionGraph::Kind::forward ? add_forward() : add_gradient();
  }

 private:
  /// [batch, heads, time, channels] in rows of `row` elements.
  Layout heads_in(int64_t heads, int64_t row) const {
    const auto& a = attention_;
    return {.sizes = {a.batch, heads, a.time, a.channels}, .strides = {a.time * row, a.channels, row, 1}};
  }
  Layout queries() const { return heads_in(attention_.heads, attention_.packed_channels()); }
  Layout keys() const { return heads_in(attention_.key_heads, attention_.packed_channels()); }
  Layout result() const { return heads_in(attention_.heads, attention_.heads * attention_.channels); }
  Layout logarithms() const {
    const auto& a = attention_;
    return {.sizes = {a.batch, a.heads, a.time, 1}, .strides = {a.heads * a.time, a.time, 1, 1}};
  }

  /// Options that both directions share.
  template <class Attributes>
  Attributes options() const {
    Attributes attributes;
    attributes.set_attn_scale(attention_.scale);
    if (attention_.causal) {
      attributes.set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    }
    return attributes;
  }

  void add_forward() {
    const Tensor q = input(queries()), k = input(keys()), v = input(keys());
    const auto [y, logs] =
        graph_->sdpa(q, k, v, options<cudnn_frontend::graph::SDPA_attributes>().set_generate_stats(true));
    output(y, result());
    logs->set_data_type(Type::FLOAT);
    output(logs, logarithms());
  }

  void add_gradient() {
    const Tensor q = input(queries()), k = input(keys()), v = input(keys()), y = input(result()), dy = input(result()),
                 logs = input(logarithms());
    logs->set_data_type(Type::FLOAT);
    const auto [dq, dk, dv] =
        graph_->sdpa_backward(q, k, v, y, dy, logs,
                              options<cudnn_frontend::graph::SDPA_backward_attributes>().set_deterministic_algorithm(
                                  attention_.deterministic));
    output(dq, queries());
    output(dk, keys());
    output(dv, keys());
  }

  AttentionGraph attention_;
};

}  // namespace gputrain::ops::cuda

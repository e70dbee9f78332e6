// The attention graphs of cudnn_graph.hpp in cuDNN's API; conv_graphs.hpp has the convolution graphs.
#pragma once

#include "cudnn_graph.hpp"
#include "numbered_graph.hpp"

namespace gputrain::ops::cuda {

/// Returns the attributes for the keys to which a query attends, by their places in its text, and for the scale.
template <class Attributes, class Attention>
Attributes options_of(const Attention& attention, int64_t window) {
  Attributes attributes;
  attributes.set_attn_scale(attention.scale);
  if (attention.causal || window > 0) {
    attributes.set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(attention.causal ? 0 : static_cast<int>(window - 1));
  }
  if (window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(window));  // counts the query's own place
  return attributes;
}

class GraphOfAttention : public NumberedGraph {
 public:
  explicit GraphOfAttention(const AttentionGraph& attention) : NumberedGraph(attention.element), attention_(attention) {
    attention.kind == AttentionGraph::Kind::forward ? add_forward() : add_gradient();
  }

 private:
  /// Lays out [batch, heads, time, channels] in rows of `row` elements.
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

  template <class Attributes>
  Attributes options() const {
    return options_of<Attributes>(attention_, /*window=*/0);
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

class GraphOfTexts : public NumberedGraph {
 public:
  explicit GraphOfTexts(const TextsGraph& texts) : NumberedGraph(texts.element), texts_(texts) {
    const auto& t = texts_;
    const Inputs in{.q = input(rows_of(t.heads, t.channels, t.query_row)),
                    .k = input(rows_of(t.key_heads, t.channels, t.key_row)),
                    .v = input(rows_of(t.key_heads, t.channels, t.value_row))};
    lengths_ = numbers(t.texts, Type::INT32);
    for (const Tensor& heads : {in.q, in.k, in.v}) heads->set_ragged_offset(offsets());
    result_offsets_ = offsets();
    logarithm_offsets_ = offsets();
    t.kind == TextsGraph::Kind::forward ? add_forward(in) : add_gradient(in);
  }

 private:
  struct Inputs {
    Tensor q, k, v;
  };

  /// Lays out [texts, heads, longest, channels] in rows of `row` elements. A text begins at its offset, not at its
  /// stride.
  Layout rows_of(int64_t heads, int64_t channels, int64_t row) const {
    return {.sizes = {texts_.texts, heads, texts_.longest, channels},
            .strides = {texts_.longest * row, channels, row, 1}};
  }
  Layout without_gaps(int64_t heads, int64_t channels) const { return rows_of(heads, channels, heads * channels); }
  Tensor offsets() { return numbers(texts_.texts + 1, Type::INT64); }

  Tensor input_at(const Tensor& offsets, const Layout& layout) {
    const Tensor tensor = input(layout);
    tensor->set_ragged_offset(offsets);
    return tensor;
  }
  void output_at(const Tensor& offsets, const Tensor& tensor, const Layout& layout) {
    output(tensor, layout);
    tensor->set_ragged_offset(offsets);
  }

  template <class Attributes>
  Attributes options() const {
    auto attributes = options_of<Attributes>(texts_, texts_.window);
    attributes.set_padding_mask(true).set_seq_len_q(lengths_).set_seq_len_kv(lengths_);
    return attributes;
  }

  void add_forward(const Inputs& in) {
    const auto [y, logs] =
        graph_->sdpa(in.q, in.k, in.v, options<cudnn_frontend::graph::SDPA_attributes>().set_generate_stats(true));
    output_at(result_offsets_, y, without_gaps(texts_.heads, texts_.channels));
    logs->set_data_type(Type::FLOAT);
    output_at(logarithm_offsets_, logs, without_gaps(texts_.heads, 1));
  }

  void add_gradient(const Inputs& in) {
    const Layout results = without_gaps(texts_.heads, texts_.channels),
                 keys = without_gaps(texts_.key_heads, texts_.channels);
    const Tensor y = input_at(result_offsets_, results), dy = input_at(result_offsets_, results),
                 logs = input_at(logarithm_offsets_, without_gaps(texts_.heads, 1));
    logs->set_data_type(Type::FLOAT);
    const Tensor key_offsets = offsets();
    // cuDNN then adds up the gradients of queries and keys in rows without gaps too, instead of texts x longest rows.
    const auto [dq, dk, dv] = graph_->sdpa_backward(in.q, in.k, in.v, y, dy, logs,
                                                    options<cudnn_frontend::graph::SDPA_backward_attributes>()
                                                        .set_max_total_seq_len_q(texts_.rows)
                                                        .set_max_total_seq_len_kv(texts_.rows)
                                                        .set_deterministic_algorithm(texts_.deterministic));
    output_at(result_offsets_, dq, results);
    output_at(key_offsets, dk, keys);
    output_at(key_offsets, dv, keys);
  }

  TextsGraph texts_;
  Tensor lengths_, result_offsets_, logarithm_offsets_;
};

}  // namespace gputrain::ops::cuda

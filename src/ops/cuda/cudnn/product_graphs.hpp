// The graphs of products in cuDNN's API; conv_graphs.hpp has the convolution graphs.
#pragma once

#include "cudnn_graph.hpp"
#include "numbered_graph.hpp"

namespace gputrain::ops::cuda {

class GraphOfProduct : public NumberedGraph {
 public:
  explicit GraphOfProduct(const ProductGraph& product) : NumberedGraph(product.element), product_(product) {
    product.kind == ProductGraph::Kind::gelu ? add_gelu() : add_gradient();
  }

 private:
  using Mode = cudnn_frontend::PointwiseMode_t;

  static Layout rows_of(int64_t rows, int64_t columns) {
    return {.sizes = {1, rows, columns}, .strides = {rows * columns, columns, 1}};
  }
  Layout left() const { return rows_of(product_.rows, product_.in); }
  Layout result() const { return rows_of(product_.rows, product_.out); }
  Layout matrix() const {
    const auto& p = product_;
    return p.transposed ? Layout{.sizes = {1, p.in, p.out}, .strides = {p.in * p.out, 1, p.in}} : rows_of(p.in, p.out);
  }

  Tensor product(const Tensor& a, const Tensor& b) {
    return graph_->matmul(a, b, cudnn_frontend::graph::Matmul_attributes());
  }
  static cudnn_frontend::graph::Pointwise_attributes by(Mode mode) {
    return cudnn_frontend::graph::Pointwise_attributes().set_mode(mode);
  }

  void add_gelu() {
    const Tensor x = input(left()), weight = input(matrix()), bias = input(rows_of(1, product_.out));
    const Tensor before = graph_->pointwise(product(x, weight), bias, by(Mode::ADD));
    output(before, result());
    output(graph_->pointwise(before, by(product_.by_tanh ? Mode::GELU_APPROX_TANH_FWD : Mode::GELU_FWD)), result());
  }

  void add_gradient() {
    const Tensor dy = input(left()), weight = input(matrix()), before = input(result());
    const auto mode = product_.by_tanh ? Mode::GELU_APPROX_TANH_BWD : Mode::GELU_BWD;
    const Tensor found = graph_->pointwise(product(dy, weight), before, by(mode));
    output(found, result());
    if (!product_.with_sums) return;
    const Tensor sums = graph_->reduction(
        found, cudnn_frontend::graph::Reduction_attributes().set_mode(cudnn_frontend::ReductionMode_t::ADD));
    sums->set_data_type(Type::FLOAT);
    output(sums, rows_of(1, product_.out));
  }

  ProductGraph product_;
};

}  // namespace gputrain::ops::cuda

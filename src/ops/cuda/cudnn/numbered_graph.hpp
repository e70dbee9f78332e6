// A cuDNN graph under construction: 16 bits in and out, fp32 between. Tensors get the ids 1, 2, ... in the order of
// input() and output() calls.
#pragma once

#include <cudnn_frontend.h>

#include <memory>
#include <vector>

#include "../kernels/kernels.hpp"

namespace gputrain::ops::cuda {

class NumberedGraph {
 public:
  using Graph = cudnn_frontend::graph::Graph;

  explicit NumberedGraph(Element element) {
    graph_->set_io_data_type(element == Element::fp16 ? Type::HALF : Type::BFLOAT16)
        .set_intermediate_data_type(Type::FLOAT)
        .set_compute_data_type(Type::FLOAT);
  }
  std::shared_ptr<Graph> graph() const { return graph_; }

 protected:
  using Tensor = std::shared_ptr<cudnn_frontend::graph::Tensor_attributes>;
  using Type = cudnn_frontend::DataType_t;
  struct Layout {
    std::vector<int64_t> sizes, strides;
  };

  Tensor input(const Layout& layout) {
    cudnn_frontend::graph::Tensor_attributes tensor;
    tensor.set_dim(layout.sizes).set_stride(layout.strides).set_uid(++ids_);
    return graph_->tensor(tensor);
  }
  /// Declares an input of `count` integers.
  Tensor numbers(int64_t count, Type type) {
    const Tensor tensor = input({.sizes = {count, 1, 1, 1}, .strides = {1, 1, 1, 1}});
    tensor->set_data_type(type);
    return tensor;
  }
  void output(const Tensor& tensor, const Layout& layout) {
    tensor->set_output(true).set_dim(layout.sizes).set_stride(layout.strides).set_uid(++ids_);
  }

  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();

 private:
  int64_t ids_ = 0;
};

}  // namespace gputrain::ops::cuda

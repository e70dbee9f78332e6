// The graphs of cudnn_graph.hpp in cuDNN's terms: for the one file that runs them, and for the test that builds them
// for GPUs that are not there. Tensors have the ids 1, 2, ... in the order of the kind's description.
#pragma once

#include <cudnn_frontend.h>

#include <memory>
#include <vector>

#include "cudnn_graph.hpp"

namespace gputrain::ops::cuda {

class GraphOfConv {
 public:
  using Graph = cudnn_frontend::graph::Graph;
  using Tensor = std::shared_ptr<cudnn_frontend::graph::Tensor_attributes>;

  explicit GraphOfConv(const ConvGraph& conv) : conv_(conv) {
    graph_->set_io_data_type(conv.element == Element::fp16 ? Type::HALF : Type::BFLOAT16)
        .set_intermediate_data_type(Type::FLOAT)
        .set_compute_data_type(Type::FLOAT);
    conv.kind == ConvGraph::Kind::sums ? add_sums() : add_gradient_sums();
  }
  std::shared_ptr<Graph> graph() const { return graph_; }

 private:
  using Type = cudnn_frontend::DataType_t;
  using Mode = cudnn_frontend::PointwiseMode_t;
  using Sizes = std::vector<int64_t>;

  Sizes image() const { return {conv_.images, conv_.in, conv_.height, conv_.width}; }
  Sizes image_out() const { return {conv_.images, conv_.out, conv_.height_out(), conv_.width_out()}; }
  Sizes filters() const { return {conv_.out, conv_.in, conv_.kernel, conv_.kernel}; }

  static Sizes channels_last(const Sizes& sizes) {
    return {sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]};
  }

  Tensor input(const Sizes& sizes) {
    cudnn_frontend::graph::Tensor_attributes tensor;
    tensor.set_dim(sizes).set_stride(channels_last(sizes)).set_uid(++ids_);
    return graph_->tensor(tensor);
  }
  Tensor per_channel_input() {
    Tensor tensor = input({1, conv_.in, 1, 1});
    tensor->set_data_type(Type::FLOAT);
    return tensor;
  }
  void output(const Tensor& tensor, const Sizes& sizes) {
    tensor->set_output(true).set_dim(sizes).set_stride(channels_last(sizes)).set_uid(++ids_);
  }

  Tensor pointwise(Mode mode, const Tensor& a, const Tensor& b) {
    return graph_->pointwise(a, b, cudnn_frontend::graph::Pointwise_attributes().set_mode(mode));
  }
  void output_sum(const Tensor& x, int64_t channels) {
    const Tensor sum = graph_->reduction(x, cudnn_frontend::graph::Reduction_attributes()
                                                .set_mode(cudnn_frontend::ReductionMode_t::ADD)
                                                .set_is_deterministic(conv_.deterministic));
    sum->set_data_type(Type::FLOAT);
    output(sum, {1, channels, 1, 1});
  }

  template <class Attributes>
  Attributes convolution() const {
    return Attributes()
        .set_padding({conv_.padding, conv_.padding})
        .set_stride({conv_.stride, conv_.stride})
        .set_dilation({1, 1});
  }

  void add_sums() {
    const Tensor x = input(image()), weight = input(filters());
    const Tensor y = graph_->conv_fprop(x, weight, convolution<cudnn_frontend::graph::Conv_fprop_attributes>());
    output(y, image_out());
    output_sum(y, conv_.out);
    output_sum(pointwise(Mode::MUL, y, y), conv_.out);
  }

  void add_gradient_sums() {
    const Tensor dy = input(image_out()), weight = input(filters()), z = input(image()), mean = per_channel_input(),
                 scale = per_channel_input(), shift = per_channel_input();
    const Tensor dx = graph_->conv_dgrad(dy, weight, convolution<cudnn_frontend::graph::Conv_dgrad_attributes>());
    dx->set_dim(image()).set_stride(channels_last(image()));
    const Tensor passed = pointwise(Mode::ADD, pointwise(Mode::MUL, z, scale), shift);
    const Tensor g = pointwise(Mode::RELU_BWD, dx, passed);
    output(g, image());
    output_sum(g, conv_.in);
    output_sum(pointwise(Mode::MUL, g, pointwise(Mode::SUB, z, mean)), conv_.in);
  }

  ConvGraph conv_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  int64_t ids_ = 0;
};

}  // namespace gputrain::ops::cuda

// The convolution graphs of cudnn_graph.hpp in cuDNN's API, for the file that runs them and for the test that builds
// them without a GPU. Tensors have the ids 1, 2, ... in the order of the kind's description.
#pragma once

#include "cudnn_graph.hpp"
#include "numbered_graph.hpp"

namespace gputrain::ops::cuda {

/// The form of a request for a convolution's sums: reductions, for which cuDNN generates kernels, or statistics, which
/// some of its own fp16 kernels compute.
enum class SumsAs { reductions, statistics };

class GraphOfConv : public NumberedGraph {
 public:
  explicit GraphOfConv(const ConvGraph& conv, SumsAs sums = SumsAs::reductions)
      : NumberedGraph(conv.element), conv_(conv) {
    conv.kind == ConvGraph::Kind::sums ? add_sums(sums) : add_gradient_sums();
  }

 private:
  using Mode = cudnn_frontend::PointwiseMode_t;

  /// Channels last.
  static Layout layout(int64_t images, int64_t channels, int64_t height, int64_t width) {
    return {.sizes = {images, channels, height, width},
            .strides = {channels * height * width, 1, width * channels, channels}};
  }
  Layout image() const { return layout(conv_.images, conv_.in, conv_.height, conv_.width); }
  Layout image_out() const { return layout(conv_.images, conv_.out, conv_.height_out(), conv_.width_out()); }
  Layout filters() const { return layout(conv_.out, conv_.in, conv_.kernel, conv_.kernel); }

  Tensor per_channel_input() {
    Tensor tensor = input(layout(1, conv_.in, 1, 1));
    tensor->set_data_type(Type::FLOAT);
    return tensor;
  }
  Tensor pointwise(Mode mode, const Tensor& a, const Tensor& b) {
    return graph_->pointwise(a, b, cudnn_frontend::graph::Pointwise_attributes().set_mode(mode));
  }
  void output_per_channel(const Tensor& values, int64_t channels) {
    values->set_data_type(Type::FLOAT);
    output(values, layout(1, channels, 1, 1));
  }
  void output_sum(const Tensor& x, int64_t channels) {
    output_per_channel(graph_->reduction(x, cudnn_frontend::graph::Reduction_attributes()
                                                .set_mode(cudnn_frontend::ReductionMode_t::ADD)
                                                .set_is_deterministic(conv_.deterministic)),
                       channels);
  }

  template <class Attributes>
  Attributes convolution() const {
    return Attributes()
        .set_padding({conv_.padding, conv_.padding})
        .set_stride({conv_.stride, conv_.stride})
        .set_dilation({1, 1});
  }

  void add_sums(SumsAs sums) {
    const Tensor x = input(image()), weight = input(filters());
    const Tensor y = graph_->conv_fprop(x, weight, convolution<cudnn_frontend::graph::Conv_fprop_attributes>());
    output(y, image_out());
    if (sums == SumsAs::statistics) {
      for (const Tensor& found : graph_->genstats(y, {})) output_per_channel(found, conv_.out);
      return;
    }
    output_sum(y, conv_.out);
    output_sum(pointwise(Mode::MUL, y, y), conv_.out);
  }

  void add_gradient_sums() {
    const Tensor dy = input(image_out()), weight = input(filters()), z = input(image()), mean = per_channel_input(),
                 scale = per_channel_input(), shift = per_channel_input();
    const Tensor dx = graph_->conv_dgrad(dy, weight, convolution<cudnn_frontend::graph::Conv_dgrad_attributes>());
    dx->set_dim(image().sizes).set_stride(image().strides);
    const Tensor passed = pointwise(Mode::ADD, pointwise(Mode::MUL, z, scale), shift);
    const Tensor g = pointwise(Mode::RELU_BWD, dx, passed);
    output(g, image());
    output_sum(g, conv_.in);
    output_sum(pointwise(Mode::MUL, g, pointwise(Mode::SUB, z, mean)), conv_.in);
  }

  ConvGraph conv_;
};

}  // namespace gputrain::ops::cuda

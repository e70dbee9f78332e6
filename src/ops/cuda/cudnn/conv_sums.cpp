#include "conv_sums.hpp"

#include <cstdint>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "../autograd/launching.hpp"
#include "cudnn_graph.hpp"

namespace gputrain::ops::cuda {
namespace {

ConvGraph graph_of(ConvGraph::Kind kind, const at::Tensor& x, const Convolution& conv) {
  return {.kind = kind,
          .element = element_of(x),
          .images = x.size(0),
          .in = x.size(1),
          .height = x.size(2),
          .width = x.size(3),
          .out = conv.weight.size(0),
          .kernel = conv.weight.size(2),
          .stride = conv.stride,
          .padding = conv.padding,
          .deterministic = at::globalContext().deterministicAlgorithms()};
}

bool is_aligned(const at::Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0; }

at::Tensor sums_of(const at::Tensor& like, int64_t channels) {
  return at::empty({2, channels}, like.options().dtype(at::kFloat));
}

}  // namespace

bool takes_sums(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf; }

// With three channels, cuDNN has no kernel that sums in a fixed order. It expects every tensor to be aligned to 16
// bytes, also the second half of the sums.
bool has_sums(const at::Tensor& x, const Convolution& conv) {
  const bool is_whole = x.size(1) % 8 == 0 || !at::globalContext().deterministicAlgorithms();
  return is_whole && conv.weight.size(0) % 8 == 0 && is_aligned(x) && is_aligned(conv.weight);
}

SummedImages convolution_sums(const at::Tensor& x, const Convolution& conv) {
  const ConvGraph graph = graph_of(ConvGraph::Kind::sums, x, conv);
  SummedImages result{.y = at::empty({graph.images, graph.out, graph.height_out(), graph.width_out()}, x.options(),
                                     at::MemoryFormat::ChannelsLast),
                      .sums = sums_of(x, graph.out)};
  run_graph(graph, {address_of(x), address_of(conv.weight), address_of(result.y)}, write<float>(result.sums));
  return result;
}

// Other strides pass cuDNN's support check, but then none of their plans can be built.
bool has_gradient_sums(const at::Tensor& dy, const Convolution& conv) {
  const bool is_whole = conv.weight.size(0) % 8 == 0 && conv.weight.size(1) % 8 == 0;
  return conv.stride == 1 && is_whole && is_aligned(dy) && is_aligned(conv.weight);
}

SummedImages convolution_gradient_sums(const at::Tensor& dy, const at::Tensor& z, const at::Tensor& moments,
                                       const Convolution& conv) {
  const ConvGraph graph = graph_of(ConvGraph::Kind::gradient_sums, z, conv);
  SummedImages result{.y = at::empty_like(z), .sums = sums_of(z, graph.in)};
  run_graph(graph,
            {address_of(dy), address_of(conv.weight), address_of(z), address_of(moments[0]), address_of(moments[2]),
             address_of(moments[3]), address_of(result.y)},
            write<float>(result.sums));
  return result;
}

}  // namespace gputrain::ops::cuda

// Convolutions fused with their norms, from the layers down to our kernels, against the same layers run one by one in
// fp64. The kernels run on the CPU here, as in tests/ops/kernels.
#include "gputrain/ops/conv_norm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "../../src/ops/dispatch/kernel_autotuner.hpp"
#include "gputrain/comm/process_groups.hpp"
#include "gputrain/comm/simulated_ranks.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/recompute.hpp"
#include "ops/compare.hpp"
#include "support/lanes/emulated_convolution.hpp"

namespace gputrain::nn {
namespace {

using testing_support::called_sums;
using testing_support::random_leaf;
using testing_support::relative_error;

/// A residual block: every convolution has a norm, the last one adds the block's input.
struct Block : Module {
  Block(const Context& context, int64_t stride, int64_t dilation, int64_t groups) : Module(context) {
    const auto add = [&](const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t by) {
      const Conv2d::Options options{.in = in,
                                    .out = out,
                                    .kernel = kernel,
                                    .stride = by,
                                    .padding = kernel / 2 * dilation,
                                    .dilation = dilation,
                                    .groups = kernel == 1 ? 1 : groups,
                                    .bias = false};
      return ConvNorm{add_child<Conv2d>("conv" + name, context, options),
                      add_child<BatchNorm2d>("bn" + name, context, BatchNorm2d::Options{.channels = out})};
    };
    layers = {add("1", 8, 4, 1, 1), add("2", 4, 4, 3, stride), add("3", 4, 8, 1, 1)};
    if (stride != 1) shortcut = add("s", 8, 8, 1, stride);
  }

  at::Tensor forward(const at::Tensor& x) const {
    return ConvNorm::forward_relu(layers, x, shortcut.conv != nullptr ? shortcut.forward(x) : x);
  }
  at::Tensor forward_one_by_one(const at::Tensor& x) const {
    at::Tensor y = x;
    for (size_t i = 0; i < 2; ++i) y = layers[i].norm->forward_relu(layers[i].conv->forward(y));
    const at::Tensor residual = shortcut.conv != nullptr ? shortcut.norm->forward(shortcut.conv->forward(x)) : x;
    return layers[2].norm->forward_relu(layers[2].conv->forward(y), residual);
  }

  std::vector<ConvNorm> layers;
  ConvNorm shortcut;
};

struct Outcome {
  at::Tensor y, dx;
  std::vector<at::Tensor> gradients, buffers;
};

enum class How { joined, one_by_one, recomputed };

struct BlockCase {
  int64_t stride = 1, dilation = 1, groups = 1;
  bool trains = true;
  comm::Group* group = nullptr;
};

/// The block's outputs and gradients; inputs have the same values in every type.
Outcome outcome_of(const BlockCase& c, at::ScalarType type, How how) {
  Block block({.policy = {.master = type, .compute = type}, .channels_last = true, .batch_group = c.group}, c.stride,
              c.dilation, c.groups);
  initialize(block, 3);
  uint64_t seed = 10;
  block.each_parameter([&](const std::string&, Parameter& p) {
    const at::NoGradGuard no_grad;
    p.value.copy_(random_leaf(p.value.sizes(), ++seed).mul(0.5));
    if (p.value.dim() == 4) p.value.set_data(p.value.contiguous(at::MemoryFormat::ChannelsLast));
  });
  block.train(c.trains);
  const auto images = [&](at::IntArrayRef sizes, uint64_t of) {
    return random_leaf(sizes, of).detach().to(type).contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor x = images({3, 8, 7, 6}, 1).set_requires_grad(true);
  const auto run = [&](const at::Tensor& in) {
    return how == How::one_by_one ? block.forward_one_by_one(in) : block.forward(in);
  };
  const at::Tensor y =
      how == How::recomputed
          ? recomputed_block(Recompute::block, {x}, [&](const auto& in) { return std::vector{run(in[0])}; })[0]
          : run(x);
  y.backward(images(y.sizes(), 2));
  Outcome outcome{.y = y.detach(), .dx = x.grad()};
  block.each_parameter([&](const std::string&, Parameter& p) { outcome.gradients.push_back(p.value.grad()); });
  block.each_buffer([&](const std::string&, Buffer& b) { outcome.buffers.push_back(b.value); });
  return outcome;
}

void expect_alike(const Outcome& ours, const Outcome& expected, double bound) {
  EXPECT_LT(relative_error(ours.y, expected.y), bound);
  EXPECT_LT(relative_error(ours.dx, expected.dx), bound);
  ASSERT_EQ(ours.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < ours.gradients.size(); ++i) {
    EXPECT_LT(relative_error(ours.gradients[i], expected.gradients[i]), bound) << "parameter " << i;
  }
  for (size_t i = 0; i < ours.buffers.size(); ++i) {
    EXPECT_LT(relative_error(ours.buffers[i].to(at::kDouble), expected.buffers[i].to(at::kDouble)), bound)
        << "buffer " << i;
  }
}

TEST(JoinedConvNorm, MatchesSeparateLayers) {
  for (const int64_t stride : {1, 2}) {
    outcome_of({.stride = stride}, at::kFloat, How::joined);  // runs the autotuner
    const auto before = called_sums();
    const Outcome ours = outcome_of({.stride = stride}, at::kFloat, How::joined);
    EXPECT_EQ(called_sums().forward - before.forward, stride == 1 ? 3 : 4);
    EXPECT_EQ(called_sums().backward - before.backward, stride == 1 ? 2 : 1);
    expect_alike(ours, outcome_of({.stride = stride}, at::kDouble, How::one_by_one), 3e-5);
  }
}

TEST(JoinedConvNorm, IsOffWithGroupsOrDilation) {
  for (const BlockCase& each : {BlockCase{.groups = 2}, BlockCase{.dilation = 2}}) {
    const auto before = called_sums();
    const Outcome ours = outcome_of(each, at::kFloat, How::joined);
    EXPECT_EQ(called_sums().forward, before.forward);
    expect_alike(ours, outcome_of(each, at::kDouble, How::one_by_one), 3e-5);
  }
}

TEST(JoinedConvNorm, MatchesWhenRecomputed) {
  const Outcome once = outcome_of({}, at::kFloat, How::joined), again = outcome_of({}, at::kFloat, How::recomputed);
  expect_alike(again, once, 1e-7);
}

TEST(JoinedConvNorm, IsOffInEvaluation) {
  const auto before = called_sums();
  const BlockCase evaluation{.trains = false};
  const Outcome ours = outcome_of(evaluation, at::kFloat, How::joined);
  EXPECT_EQ(called_sums().forward, before.forward);
  expect_alike(ours, outcome_of(evaluation, at::kDouble, How::one_by_one), 3e-5);
}

TEST(JoinedConvNorm, IsOffWithSharedStatistics) {
  auto groups =
      comm::ProcessGroups::simulated({.rank = 0, .world_size = 2}, std::make_shared<comm::CollectiveTraffic>());
  const auto before = called_sums();
  outcome_of({.group = &groups.tensors()}, at::kFloat, How::joined);
  EXPECT_EQ(called_sums().forward, before.forward);
}

TEST(JoinedConvNorm, IsOffForDoubles) {
  const auto before = called_sums();
  outcome_of({}, at::kDouble, How::joined);
  EXPECT_EQ(called_sums().forward, before.forward);
}

}  // namespace
}  // namespace gputrain::nn

// Operators made of kernels, with autograd, against ATen in fp64. Run on a CPU, and on a GPU if there is one.
#include "../../../src/ops/dispatch/gpu.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/kernels/gpu_case.hpp"

namespace gputrain::ops {
namespace {

using namespace testing_support;

constexpr double kEps = 1e-5;

TEST_F(GpuOperators, ComputeLayerNormAndRmsNorm) {
  for (const Storage& storage : storages()) {
    const at::Tensor x = noise({2, 7, 40}, 1, storage.type), weight = noise({40}, 2, at::kFloat),
                     bias = noise({40}, 3, at::kFloat);
    const Tensors both{x, weight, bias, {}}, without_bias{x, weight, {}, {}};
    const OpImpl layer = [](const Tensors& t) { return Tensors{at::layer_norm(t[0], {40}, t[1], t[2], kEps)}; };
    compare(both, 4, gpu::norm(both, kEps, true, 0), layer);
    compare(without_bias, 4, gpu::norm(without_bias, kEps, true, 0), layer);
    compare(without_bias, 4, gpu::norm(without_bias, kEps, false, 0),
            [](const Tensors& t) { return Tensors{at::rms_norm(t[0], {40}, t[1], kEps)}; });
  }
}

TEST_F(GpuOperators, ComputeNormOfSumWithBothGradients) {
  for (const Storage& storage : storages()) {
    const Tensors inputs{noise({3, 5, 24}, 1, storage.type), noise({24}, 2, at::kFloat), noise({24}, 3, at::kFloat),
                         noise({3, 5, 24}, 4, storage.type)};
    const OpImpl reference = [](const Tensors& t) {
      const at::Tensor z = at::add(t[0], t[3]);
      return Tensors{at::layer_norm(z, {24}, t[1], t[2], kEps), z};
    };
    compare(inputs, 4, gpu::norm(inputs, kEps, true, 0), reference);
    const OpImpl custom = gpu::norm(inputs, kEps, true, 0);
    const auto only = [](const OpImpl& impl, size_t index) -> OpImpl {
      return [impl, index](const Tensors& t) { return Tensors{impl(t)[index]}; };
    };
    compare(inputs, 4, only(custom, 0), only(reference, 0));
    const Tensors sum = custom(leaves_of(inputs, 4, false));
    sum[1].sum().backward();  // only of the sum: no gradient goes through the norm
  }
}

TEST_F(GpuOperators, AddNormGradientsInPlace) {
  for (const bool has_bias : {true, false}) {
    const Tensors inputs{noise({6, 50, 24}, 1, at::kFloat), noise({24}, 2, at::kFloat),
                         has_bias ? noise({24}, 3, at::kFloat) : at::Tensor(), at::Tensor()};
    const Tensors exact = leaves_of(inputs, 3, /*in_double=*/true);
    const at::Tensor weight = inputs[1].set_requires_grad(true), start = noise({24}, 5, at::kFloat),
                     place = start.clone(), bias_place = start.clone();
    at::Tensor(weight).mutable_grad() = place;
    if (has_bias) at::Tensor(inputs[2].set_requires_grad(true)).mutable_grad() = bias_place;
    const OpImpl custom = gpu::norm(inputs, kEps, true, 0);
    for (int pass = 0; pass < 2; ++pass) custom(inputs)[0].square().sum().backward();
    EXPECT_TRUE(weight.grad().is_same(place));
    at::layer_norm(exact[0], {24}, exact[1], exact[2], kEps).square().sum().backward();
    expect_within(1e-5, place, wide(start) + 2 * exact[1].grad(), "gradient of the weight");
    if (has_bias) expect_within(1e-5, bias_place, wide(start) + 2 * exact[2].grad(), "gradient of the bias");
  }
}

TEST_F(GpuOperators, RepeatDropoutOfNormOfSumInBackward) {
  constexpr double kShare = 0.25;
  at::Generator generator = at::globalContext().defaultGenerator(kernel_device());
  generator.set_current_seed(5);
  for (const Storage& storage : storages()) {
    const Tensors inputs{noise({6, 50, 24}, 1, storage.type).add_(6), noise({24}, 2, at::kFloat),
                         noise({24}, 3, at::kFloat), noise({6, 50, 24}, 4, storage.type)};
    Tensors masks;
    const OpImpl custom = [&](const Tensors& t) {
      const Tensors found = gpu::norm(inputs, kEps, true, kShare)(t);
      masks.push_back(wide(found[1].detach() - t[3].detach()).abs().gt(2));  // x is far from 0
      return found;
    };
    const OpImpl reference = [&](const Tensors& t) {
      const at::Tensor z = at::add(t[0] * masks.back() / (1 - kShare), t[3]);
      return Tensors{at::layer_norm(z, {24}, t[1], t[2], kEps), z};
    };
    compare(inputs, 4, custom, reference, /*slack=*/3);  // z is large beside its spread: coarser rounding
    EXPECT_NEAR(wide(masks[0]).mean().item<double>(), 1 - kShare, 0.02);
    const Tensors again = custom(leaves_of(inputs, 4, false));
    EXPECT_FALSE(masks[0].equal(masks[1]));
    again[1].sum().backward();  // only of the sum: the gradient must still go through the dropout
  }
}

TEST_F(GpuOperators, ComputeActivations) {
  for (const Storage& storage : storages()) {
    const Tensors inputs{noise({3, 4, 33}, 1, storage.type)};
    compare(inputs, 1, gpu::activation(inputs[0], Activation::gelu),
            [](const Tensors& t) { return Tensors{at::gelu(t[0])}; });
    compare(inputs, 1, gpu::activation(inputs[0], Activation::gelu_tanh),
            [](const Tensors& t) { return Tensors{at::gelu(t[0], "tanh")}; });
    compare(inputs, 1, gpu::activation(inputs[0], Activation::silu),
            [](const Tensors& t) { return Tensors{at::silu(t[0])}; });
    EXPECT_FALSE(gpu::activation(inputs[0], Activation::relu));
    EXPECT_FALSE(gpu::activation(inputs[0].transpose(0, 1), Activation::gelu));
  }
}

TEST_F(GpuOperators, ComputeSwigluOfTensorsAndHalves) {
  for (const Storage& storage : storages()) {
    const OpImpl reference = [](const Tensors& t) { return Tensors{at::silu(t[0]) * t[1]}; };
    const Tensors apart{noise({2, 3, 16}, 1, storage.type), noise({2, 3, 16}, 2, storage.type)};
    compare(apart, 2, gpu::swiglu(apart[0], apart[1]), reference);
    const Tensors joined{noise({2, 3, 32}, 3, storage.type)};
    const auto halves = [](const OpImpl& impl) -> OpImpl {
      return [impl](const Tensors& t) { return impl(gpu::split_columns(t[0], {16, 16})); };
    };
    const auto parts = joined[0].chunk(2, -1);
    compare(joined, 1, halves(gpu::swiglu(parts[0], parts[1])), halves(reference));
    EXPECT_FALSE(gpu::swiglu(apart[0], parts[0]));
  }
}

TEST_F(GpuOperators, SplitColumnsWithoutACopyOfGradientsSideBySide) {
  const at::Tensor y = noise({2, 3, 24}, 1, at::kFloat).requires_grad_(), whole = noise({2, 3, 24}, 2, at::kFloat);
  const auto gradient_by = [&](const Tensors& gradients) {
    return torch::autograd::grad(gpu::split_columns(y, {16, 8}), {y}, gradients)[0];
  };
  const Tensors beside{whole.narrow(2, 0, 16), whole.narrow(2, 16, 8)};
  EXPECT_TRUE(gradient_by(beside).is_alias_of(whole));
  EXPECT_TRUE(gradient_by(beside).equal(whole));
  EXPECT_TRUE(gradient_by({beside[0].clone(), beside[1]}).equal(whole));
  const at::Tensor wider = noise({2, 3, 32}, 3, at::kFloat);
  const Tensors within{wider.narrow(2, 0, 16), wider.narrow(2, 16, 8)};
  EXPECT_TRUE(gradient_by(within).equal(wider.narrow(2, 0, 24)));
  const Tensors turned{whole.narrow(2, 8, 16), whole.narrow(2, 0, 8)};
  EXPECT_TRUE(gradient_by(turned).equal(at::cat(turned, 2)));
  const at::Tensor numbers = noise({17}, 5, at::kFloat);
  const Tensors repeated{numbers.narrow(0, 0, 1).expand({2, 3, 16}), numbers.narrow(0, 16, 1).expand({2, 3, 8})};
  EXPECT_TRUE(gradient_by(repeated).equal(at::cat(repeated, 2)));
  const at::Tensor halves = noise({2, 3, 32}, 4, at::kFloat).requires_grad_();
  const Tensors parts = gpu::split_columns(halves, {16, 16});
  const Tensors found = torch::autograd::grad(gpu::swiglu(parts[0], parts[1])(parts), parts, {whole.narrow(2, 0, 16)});
  EXPECT_EQ(found[1].storage_offset(), 16);
  EXPECT_TRUE(found[1].is_alias_of(found[0]));
}

TEST_F(GpuOperators, RotateViewOfJoinedHeads) {
  for (const Storage& storage : storages()) {
    const Tensors inputs{noise({2, 5, 3 * 24}, 1, storage.type), noise({5, 4}, 2, at::kFloat),
                         noise({5, 4}, 3, at::kFloat)};
    const auto query = [](const at::Tensor& joined) {
      return joined.narrow(2, 24, 24).view({2, 5, 3, 8}).transpose(1, 2);
    };
    const OpImpl custom = gpu::rotate(query(inputs[0]));
    ASSERT_TRUE(custom);
    compare(
        inputs, 1,
        [&](const Tensors& t) {
          return custom({query(t[0]), t[1], t[2]});
        },
        [&](const Tensors& t) {
          const at::Tensor x = query(t[0]), low = x.narrow(3, 0, 4), high = x.narrow(3, 4, 4);
          return Tensors{at::cat({low * t[1] - high * t[2], high * t[1] + low * t[2]}, 3)};
        });
  }
}

TEST_F(GpuOperators, ComputeEmbeddingWithGradientInPlace) {
  const at::Tensor weight = noise({11, 40}, 1, at::kFloat), places = at::arange(21, on_device(at::kLong));
  const at::Tensor tokens = places.mul(places).remainder_(11).view({3, 7});
  const OpImpl custom = gpu::embedding(weight, tokens);
  compare({weight, tokens}, 1, custom, [](const Tensors& t) { return Tensors{at::embedding(t[0], t[1])}; });
  const at::Tensor dy = noise({3, 7, 40}, 2, at::kFloat), start = noise({11, 40}, 3, at::kFloat);
  const at::Tensor leaf = weight.clone().set_requires_grad(true), place = start.clone();
  leaf.mutable_grad() = place;
  custom({leaf, tokens})[0].backward(dy);
  EXPECT_TRUE(leaf.grad().is_same(place));
  expect_within(1e-6, place, wide(start).index_add(0, tokens.flatten(), wide(dy).view({21, 40})), "added");
  EXPECT_FALSE(gpu::embedding(weight, tokens.to(at::kInt)));
}

TEST_F(GpuOperators, ComputeCrossEntropyWithPaddedColumns) {
  for (const Storage& storage : storages()) {
    at::Tensor targets = at::arange(6, on_device(at::kLong)).mul_(5).remainder_(13);
    targets[2].fill_(-100);
    const Tensors inputs{noise({6, 16}, 1, storage.type), targets, at::full({}, 0.3, on_device(at::kDouble))};
    const OpImpl reference = [](const Tensors& t) {
      const at::Tensor sum = at::cross_entropy_loss(t[0].narrow(1, 0, 13), t[1], {}, at::Reduction::Sum, -100, 0.1);
      return Tensors{sum * t[2].to(sum.scalar_type()), sum.detach()};
    };
    const OpImpl custom = gpu::cross_entropy(inputs[0], 13, 0.1);
    compare(inputs, 1, custom, reference, /*slack=*/2);  // the incoming factor rounds its gradient again
    const at::Tensor leaf = inputs[0].clone().set_requires_grad(true);
    const at::Tensor loss = custom({leaf.view_as(leaf), targets, inputs[2]})[0];
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_ANY_THROW(loss.backward());  // the gradient has overwritten the logits
  }
}

TEST_F(GpuOperators, ComputeLogProbsOfTargets) {
  for (const Storage& storage : storages()) {
    at::Tensor targets = at::arange(6, on_device(at::kLong)).mul_(5).remainder_(13);
    targets[2].fill_(-100);
    const Tensors inputs{noise({6, 16}, 1, storage.type), targets};
    const OpImpl custom = gpu::log_probs(inputs[0], 13);
    compare(inputs, 1, custom, [](const Tensors& t) {
      return Tensors{-at::cross_entropy_loss(t[0].narrow(1, 0, 13), t[1], {}, at::Reduction::None, -100)};
    });
    const at::Tensor leaf = inputs[0].clone().set_requires_grad(true);
    const at::Tensor sum = custom({leaf.view_as(leaf), targets})[0].sum();
    sum.backward({}, /*retain_graph=*/true);
    EXPECT_ANY_THROW(sum.backward());  // the gradient has overwritten the logits
  }
}

TEST_F(GpuOperators, ComputeBatchNormWithResidualAndRelu) {
  for (const Storage& storage : storages()) {
    const auto images = [&](uint64_t seed) {
      return noise({3, 16, 5, 4}, seed, storage.type).contiguous(at::MemoryFormat::ChannelsLast);
    };
    for (const bool relu : {false, true}) {
      for (const bool has_residual : {false, true}) {
        const Tensors inputs{images(1),
                             has_residual ? images(4) : at::Tensor(),
                             noise({16}, 2, at::kFloat),
                             noise({16}, 3, at::kFloat),
                             at::zeros({16}, on_device()),
                             at::ones({16}, on_device())};
        // If a rounded y were 0 and the exact one not, the ReLU would differ; no value is that close to 0.
        compare(inputs, 4, gpu::batch_norm(inputs, {}, relu), [&](const Tensors& t) {
          at::Tensor y = at::batch_norm(t[0], t[2], t[3], t[4], t[5], true, 0.1, kEps, false);
          if (t[1].defined()) y = y + t[1];
          return Tensors{relu ? at::relu(y) : y};
        });
      }
    }
    const Tensors rows_first{noise({3, 16, 5, 4}, 1, storage.type),
                             {},
                             noise({16}, 2, at::kFloat),
                             noise({16}, 3, at::kFloat),
                             at::zeros({16}, on_device()),
                             at::ones({16}, on_device())};
    EXPECT_FALSE(gpu::batch_norm(rows_first, {}, true));
  }
}

/// A convolution and its norm, with filters of size `kernel`.
struct JoinedLayer {
  int64_t out, kernel, stride = 1;
};

/// Inputs of gpu::conv_norms() for images with this number of channels.
Tensors joined_inputs(int64_t channels, const std::vector<JoinedLayer>& layers, at::IntArrayRef residual_sizes,
                      at::ScalarType type) {
  uint64_t seed = 0;
  const auto images = [&](at::IntArrayRef sizes) {
    return noise(sizes, ++seed, type).contiguous(at::MemoryFormat::ChannelsLast);
  };
  Tensors inputs{images({3, channels, 9, 7}), residual_sizes.empty() ? at::Tensor() : images(residual_sizes)};
  for (const JoinedLayer& layer : layers) {
    inputs.push_back(images({layer.out, channels, layer.kernel, layer.kernel}));
    for (int i = 0; i < 2; ++i) inputs.push_back(noise({layer.out}, ++seed, at::kFloat));
    channels = layer.out;
  }
  for (const JoinedLayer& layer : layers) {
    inputs.push_back(at::zeros({layer.out}, on_device()));
    inputs.push_back(at::ones({layer.out}, on_device()));
  }
  return inputs;
}

std::vector<gpu::ConvNormShape> shapes_of(const std::vector<JoinedLayer>& layers) {
  std::vector<gpu::ConvNormShape> shapes;
  for (const JoinedLayer& layer : layers) shapes.push_back({.stride = layer.stride, .padding = layer.kernel / 2});
  return shapes;
}

OpImpl one_after_the_other(const std::vector<JoinedLayer>& layers, bool last_relu) {
  return [=](const Tensors& t) {
    at::Tensor y = t[0];
    for (size_t i = 0; i < layers.size(); ++i) {
      const size_t weight = 2 + 3 * i, running = 2 + 3 * layers.size() + 2 * i;
      const int64_t stride = layers[i].stride, padding = layers[i].kernel / 2;
      y = at::batch_norm(at::conv2d(y, t[weight], {}, {stride, stride}, {padding, padding}), t[weight + 1],
                         t[weight + 2], t[running], t[running + 1], true, 0.1, kEps, false);
      const bool is_last = i + 1 == layers.size();
      if (is_last && t[1].defined()) y = y + t[1];
      if (!is_last || last_relu) y = at::relu(y);
    }
    return Tensors{y};
  };
}

TEST_F(GpuOperators, ComputeConvolutionsWithNorms) {
  const std::vector<JoinedLayer> bottleneck{{8, 1}, {8, 3}, {32, 1}}, shrinking{{8, 1}, {8, 3, 2}, {16, 1}},
      basic{{24, 3}, {16, 3}}, single{{8, 3, 2}};
  for (const Storage& storage : storages()) {
    const auto check = [&](int64_t channels, const std::vector<JoinedLayer>& layers, at::IntArrayRef residual,
                           bool relu) {
      SCOPED_TRACE(testing::Message() << storage.name << ", " << layers.size() << " layers");
      const Tensors inputs = joined_inputs(channels, layers, residual, storage.type);
      const OpImpl custom = gpu::conv_norms(inputs, shapes_of(layers), relu);
      if (storage.type == at::kFloat && !custom) return;  // on a GPU only 16-bit types are supported
      // Rounding to 16 bits moves values across the ReLU's edge, which then pass all or none of their gradient: in
      // images this small, only half a digit is left. fp32 checks how the parts fit together; separate tests check each
      // part.
      const bool has_edge = relu || layers.size() > 1;
      const double slack = storage.type == at::kFloat ? 3 : has_edge ? 150 : 3;
      compare(inputs, 2 + 3 * layers.size(), custom, one_after_the_other(layers, relu), slack);
    };
    check(32, bottleneck, {3, 32, 9, 7}, true);
    check(16, shrinking, {3, 16, 5, 4}, true);
    check(16, basic, {3, 16, 9, 7}, true);
    check(16, basic, {}, true);
    check(16, single, {}, false);
    check(3, single, {}, true);
  }
}

TEST_F(GpuOperators, AcceptConvolutionsWithNormsTheySupport) {
  const std::vector<JoinedLayer> layers{{8, 3}};
  const Tensors inputs = joined_inputs(8, layers, {}, at::kBFloat16);
  EXPECT_TRUE(gpu::conv_norms(inputs, shapes_of(layers), true));
  const auto with = [&](size_t place, const at::Tensor& other) {
    Tensors changed = inputs;
    changed[place] = other;
    return gpu::conv_norms(changed, shapes_of(layers), true);
  };
  EXPECT_FALSE(with(0, inputs[0].contiguous()));       // NCHW order
  EXPECT_FALSE(with(2, inputs[2].to(at::kHalf)));      // two types
  EXPECT_FALSE(with(3, inputs[3].to(at::kBFloat16)));  // a norm's weight must be fp32
  EXPECT_FALSE(with(0, inputs[0].narrow(0, 0, 0)));    // empty
  Tensors one_value = inputs;
  one_value[0] = inputs[0].narrow(0, 0, 1);
  EXPECT_FALSE(gpu::conv_norms(one_value, {{.stride = 9, .padding = 1}}, true));  // one value per channel
}

TEST_F(GpuOperators, FallBackToAtenForMissingKernel) {
  const Tensors inputs{noise({8}, 1, at::kFloat)};
  bool is_missing = false;
  int asked = 0;
  const OpImpl custom = [&](const Tensors& t) {
    ++asked;
    if (is_missing) throw NoKernel("as a test has it");
    return Tensors{t[0] + 1};
  };
  const OpImpl reference = [](const Tensors& t) { return Tensors{t[0] + 1}; };
  const auto result = [&] { return run("missing", inputs, {.batched = 1, .differentiable = 0}, custom, reference)[0]; };
  result();
  is_missing = true;
  asked = 0;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(result().equal(inputs[0] + 1));
  EXPECT_EQ(asked, 1);
}

TEST_F(GpuOperators, ComputeMaxPool) {
  for (const Storage& storage : storages()) {
    const Tensors inputs{noise({2, 16, 7, 10}, 1, storage.type).contiguous(at::MemoryFormat::ChannelsLast)};
    compare(inputs, 1, gpu::max_pool(inputs[0], 3, 2, 1), [](const Tensors& t) {
      return Tensors{at::max_pool2d(t[0], {3, 3}, {2, 2}, {1, 1})};
    });
    EXPECT_FALSE(gpu::max_pool(inputs[0], 2, 2, 0));
    const at::Tensor leaf = inputs[0].clone().set_requires_grad(true);
    at::Tensor x = leaf * 1;
    const auto memory = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(x.storage().unsafeGetStorageImpl());
    const at::Tensor y = gpu::max_pool(x, 3, 2, 1)({x})[0];
    x.reset();
    EXPECT_EQ(memory.use_count(), 1) << "the largest tensor of a network is kept for nothing";
  }
}

TEST_F(GpuOperators, RefuseDoubles) { EXPECT_FALSE(gpu::is_here(at::ones({3}, on_device(at::kDouble)))); }

}  // namespace
}  // namespace gputrain::ops

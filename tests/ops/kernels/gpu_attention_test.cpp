// Attention on packed heads, with autograd, against ATen in fp64.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/function.h>

#include "gputrain/ops/attention.hpp"
#include "ops/kernels/gpu_case.hpp"
#include "support/lanes/emulated_attention.hpp"

namespace gputrain::ops {
namespace {

using namespace testing_support;

struct HeadsCase {
  int64_t time, heads, key_heads, channels;
};
constexpr HeadsCase kHeads[] = {{64, 2, 2, 16}, {197, 3, 3, 8}, {33, 4, 2, 24}, {2, 2, 1, 8}};

at::Tensor packed_noise(const HeadsCase& c, at::ScalarType type) {
  return noise({2, c.time, (c.heads + 2 * c.key_heads) * c.channels}, 1, type);
}

TEST_F(GpuOperators, ComputeAttentionOnPackedHeads) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    // cuDNN also rounds the attention weights, their gradients, and each query head's gradients of a shared key head.
    const double slack = type == at::kBFloat16 ? 2 : 1;
    for (const HeadsCase& c : kHeads) {
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(std::to_string(c.time) + (causal ? " causal" : ""));
        const Tensors inputs{packed_noise(c, type)};
        const double scale = 1 / std::sqrt(static_cast<double>(c.channels));
        compare(
            inputs, 1, gpu::attention(inputs[0], c.heads, c.key_heads, causal, scale),
            [&](const Tensors& t) {
              const auto [q, k, v] = unpacked(t[0], c.heads, c.key_heads);
              const at::Tensor y =
                  at::scaled_dot_product_attention(q, k, v, {}, 0, causal, scale, c.heads != c.key_heads);
              return Tensors{y.transpose(1, 2).reshape({2, c.time, c.heads * c.channels})};
            },
            slack);
      }
    }
  }
}

TEST_F(GpuOperators, LeaveAttentionCudnnLacksToAten) {
  const auto is_taken = [](const at::Tensor& packed) {
    return static_cast<bool>(gpu::attention(packed, 2, 2, true, 1));
  };
  EXPECT_TRUE(is_taken(noise({2, 5, 6 * 16}, 1, at::kHalf)));
  EXPECT_FALSE(is_taken(noise({2, 5, 6 * 16}, 1, at::kFloat)));
  EXPECT_FALSE(is_taken(noise({2, 5, 6 * 12}, 1, at::kHalf)));
  EXPECT_FALSE(is_taken(noise({2, 5, 6 * 136}, 1, at::kHalf)));
  EXPECT_FALSE(is_taken(noise({5, 2, 6 * 16}, 1, at::kHalf).transpose(0, 1)));
}

// cuDNN's graph knows all keys of a row, or those up to a query's place.
TEST_F(GpuOperators, LeaveAttentionToSomeOfTheKeysToAten) {
  const at::Tensor packed = noise({2, 5, 6 * 16}, 1, at::kHalf).set_requires_grad(true);
  const auto whole = at::TensorOptions().dtype(at::kLong).device(packed.device());
  const at::Tensor lengths = at::full({2}, 3, whole), positions = at::arange(5, whole).remainder(3).expand({2, 5});
  for (const AttentionOptions& options :
       {AttentionOptions{.causal = false, .lengths = lengths},
        AttentionOptions{.causal = false, .positions = positions}, AttentionOptions{.causal = false, .window = 2},
        AttentionOptions{.causal = false, .dropout = 0.1}}) {
    const at::Tensor y = packed_attention(packed, 2, 2, options);
    EXPECT_EQ(y.grad_fn()->name().find("AttentionFunction"), std::string::npos);
    EXPECT_TRUE(y.isfinite().all().item<bool>());
  }
}

/// Two rows of several texts, and padding behind the last one, which counts as a text.
at::Tensor positions_of_texts(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<at::Tensor> all;
  for (const auto& texts : rows) {
    std::vector<at::Tensor> row;
    for (const int64_t length : texts) row.push_back(at::arange(length, at::kLong));
    all.push_back(at::cat(row));
  }
  return at::stack(all).to(kernel_device());
}

at::Tensor numbers(const std::vector<int64_t>& values, at::ScalarType type = at::kLong) {
  return at::tensor(values, type).to(kernel_device());
}

TEST(TextsOfABatch, AreThoseThatPositionsTellApart) {
  const at::Tensor positions = positions_of_texts({{3, 1, 1, 2}, {7}});
  const Texts texts = texts_of_positions(positions, 5, 7);
  EXPECT_EQ(texts.offsets.scalar_type(), at::kInt);
  EXPECT_TRUE(texts.offsets.equal(numbers({0, 3, 4, 5, 7, 14, 14, 14, 14, 14, 14}, at::kInt))) << texts.offsets;
  const Texts of_lengths = texts_of_lengths(numbers({2, 5, 0}), 5);
  EXPECT_TRUE(of_lengths.offsets.equal(numbers({0, 2, 5, 10, 10, 10, 15}, at::kInt))) << of_lengths.offsets;
  EXPECT_EQ(of_lengths.longest, 5);
}

/// With the capabilities of GPUs that attend to texts by FlashAttention, and by cuDNN; a GPU has its own.
class TextsOnGpu : public GpuOperators, public testing::WithParamInterface<int> {
 protected:
  TextsOnGpu() { emulated_capability = GetParam(); }
  ~TextsOnGpu() override {
    emulated_capability = 0;
    at::globalContext().setDeterministicAlgorithms(is_deterministic_, /*warn_only=*/true);
  }
  /// cuDNN takes no texts on Hopper where equal bits are asked for.
  void SetUp() override {
    GpuOperators::SetUp();
    kernel_autotuner();  // begins before, so that time does not count
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/true);
  }

  static void expect_equal_to_mask(const AttentionOptions& options, const at::Tensor& counts) {
    AttentionOptions masked = options;
    masked.texts = {};
    const int64_t time = 12;
    Tensors ours, exact;
    for (const int64_t heads : {4, 2, 2}) {
      const at::Tensor x = noise({2, time, heads, 16}, static_cast<uint64_t>(heads), at::kBFloat16).transpose(1, 2);
      ours.push_back(x.detach().set_requires_grad(true));
      exact.push_back(x.detach().to(at::kDouble).set_requires_grad(true));
    }
    // Queries of padding give no result.
    const at::Tensor places = at::arange(time, at::TensorOptions().dtype(at::kLong).device(kernel_device()));
    const at::Tensor counted =
        counts.defined() ? places.lt(counts.unsqueeze(1)).view({2, 1, time, 1}) : places.ge(0).view({1, 1, time, 1});
    // attention() computes short texts on a CPU in fp32.
    const at::Tensor y = gpu::attention_of_texts(ours[0], ours[1], ours[2], options),
                     expected = attention(exact[0], exact[1], exact[2], masked);
    expect_within(5e-3, y * counted, expected * counted, "the result");
    (y * counted).square().sum().backward();
    (expected * counted).square().sum().backward();
    for (size_t i = 0; i < ours.size(); ++i)
      expect_within(1e-2, ours[i].grad(), exact[i].grad(), "gradient " + std::to_string(i));
  }

 private:
  bool is_deterministic_ = at::globalContext().deterministicAlgorithms();
};

INSTANTIATE_TEST_SUITE_P(Of, TextsOnGpu, testing::Values(8, 9, 10));

TEST_P(TextsOnGpu, AttendToTheirOwnText) {
  const at::Tensor positions = positions_of_texts({{3, 4, 1, 4}, {12}});
  const Texts texts = texts_of_positions(positions, 6, 12);
  for (const int64_t window : {0, 2})
    for (const bool causal : {true, false})
      expect_equal_to_mask({.causal = causal, .window = window, .positions = positions, .texts = texts}, {});
}

TEST_P(TextsOnGpu, LeaveOutPadding) {
  const at::Tensor lengths = numbers({5, 12});
  for (const int64_t window : {0, 2})
    expect_equal_to_mask(
        {.causal = false, .window = window, .lengths = lengths, .texts = texts_of_lengths(lengths, 12)}, lengths);
}

/// Memory with room for 12 tokens of three texts, the newest of them at place 7; what is behind it is not a number.
TEST_P(TextsOnGpu, ReadMemoryThatHasRoom) {
  constexpr int64_t kRoom = 12, kPlace = 7;
  const at::Tensor place = numbers({kPlace}), begins = numbers({0, 3, 7});
  const KeyRoom room = key_room(place, begins, kRoom);
  const auto memory = [&](uint64_t seed, double behind) {
    const at::Tensor one = noise({3, kRoom, 2, 16}, seed, at::kBFloat16);
    one.narrow(1, kPlace + 1, kRoom - kPlace - 1).fill_(behind);
    return one.transpose(1, 2);
  };
  const at::Tensor q = noise({3, 1, 4, 16}, 1, at::kBFloat16).transpose(1, 2);
  for (const int64_t window : {0, 2}) {
    const AttentionOptions options{.window = window, .room = room};
    const at::Tensor y = gpu::attention_in_room(q, memory(2, NAN), memory(3, NAN), options);
    const at::Tensor by_mask =
        attention(q.to(at::kDouble), memory(2, 5).to(at::kDouble), memory(3, 5).to(at::kDouble), options);
    for (int64_t row = 0; row < 3; ++row) {
      const int64_t begin = begins[row].item<int64_t>(),
                    first = window > 0 ? std::max(begin, kPlace + 1 - window) : begin;
      const auto seen = [&](const at::Tensor& x) {
        return x.narrow(0, row, 1).narrow(2, first, kPlace + 1 - first).to(at::kDouble);
      };
      const at::Tensor expected =
          attention(q.narrow(0, row, 1).to(at::kDouble), seen(memory(2, 0)), seen(memory(3, 0)), {});
      expect_within(5e-3, y.narrow(0, row, 1), expected, "the kernel's result");
      expect_within(1e-12, by_mask.narrow(0, row, 1), expected, "by a mask");
    }
  }
  EXPECT_FALSE(gpu::attention_in_room(q.to(at::kFloat), memory(2, 0), memory(3, 0), {.room = room}).defined());
}

TEST_P(TextsOnGpu, AreLeftToAtenWhereItsKernelDoesNotTakeThem) {
  const at::Tensor positions = positions_of_texts({{3, 4, 1, 4}, {12}});
  const AttentionOptions options{.positions = positions, .texts = texts_of_positions(positions, 6, 12)};
  const auto is_taken = [&](int64_t channels, at::ScalarType type) {
    const at::Tensor x = noise({2, 2, 12, channels}, 1, type);
    return gpu::attention_of_texts(x, x, x, options).defined();
  };
  EXPECT_TRUE(is_taken(16, at::kHalf));
  EXPECT_FALSE(is_taken(16, at::kFloat));
  EXPECT_FALSE(is_taken(12, at::kHalf));
  EXPECT_FALSE(is_taken(264, at::kHalf));
  if (!kernel_device().is_cpu()) return;  // a GPU has its own
  emulated_capability = 7;
  EXPECT_FALSE(is_taken(16, at::kHalf));
}

}  // namespace
}  // namespace gputrain::ops

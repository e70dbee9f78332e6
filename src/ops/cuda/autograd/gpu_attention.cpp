#include <mutex>
#include <set>
#include <tuple>

#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../../dispatch/gpu.hpp"
#include "../cudnn/packed_attention.hpp"
#include "gputrain/core/error.hpp"
#include "flash_attention.hpp"
#include "launching.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Throws NoKernel if the result has a kernel but its gradient has none: cuDNN rejects some batch sizes, and the choice
/// may have used part of a batch. Checked before the result is used, once per shape.
void need_gradient(const at::Tensor& packed, const PackedAttention& attention, const Attended& found) {
  using Shape = std::tuple<at::ScalarType, std::vector<int64_t>, int64_t, int64_t, bool>;
  static std::mutex mutex;
  static std::set<Shape> tried;
  const auto& [heads, key_heads, causal, scale] = attention;
  const Shape shape{packed.scalar_type(), packed.sizes().vec(), heads, key_heads, causal};
  {
    const std::lock_guard lock(mutex);
    if (tried.contains(shape)) return;
  }
  packed_attention_gradient(packed, attention, found, found.y);
  const std::lock_guard lock(mutex);
  tried.insert(shape);
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& packed, int64_t heads, int64_t key_heads,
                            bool causal, double scale) {
    const PackedAttention attention{heads, key_heads, causal, scale};
    const Attended found = packed_attention(packed, attention);
    if (packed.requires_grad()) need_gradient(packed, attention, found);
    context->save_for_backward({packed, found.y, found.logarithms});
    context->saved_data["heads"] = heads;
    context->saved_data["key_heads"] = key_heads;
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    return found.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "attention in one kernel has no second derivative");
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const PackedAttention attention{data["heads"].toInt(), data["key_heads"].toInt(), data["causal"].toBool(),
                                    data["scale"].toDouble()};
    try {
      return {packed_attention_gradient(saved[0], attention, {saved[1], saved[2]}, gradients[0].contiguous()),
              {},
              {},
              {},
              {}};
    } catch (const NoKernel& reason) {  // ATen cannot go on from this forward pass
      throw Error(ExitCode::environment, {.what = std::string("the gradient of attention failed: ") + reason.what(),
                                          .hint = "set GPUTRAIN_KERNELS=aten, and report this"});
    }
  }
};

/// What cuDNN's kernels accept in both directions: 16 bits, heads of a multiple of 16 bytes, at most 128 channels.
bool takes_heads(const at::Tensor& packed, int64_t channels) {
  constexpr int64_t kMostChannels = 128;
  const bool is_16_bits = packed.scalar_type() == at::kBFloat16 || packed.scalar_type() == at::kHalf;
  return is_16_bits && packed.is_contiguous() && packed.numel() > 0 && channels % 8 == 0 && channels <= kMostChannels &&
         reinterpret_cast<uintptr_t>(packed.const_data_ptr()) % 16 == 0;
}

}  // namespace
}  // namespace cuda

namespace gpu {

OpImpl attention(const at::Tensor& packed, int64_t heads, int64_t key_heads, bool causal, double scale) {
  if (!is_here(packed) || !cuda::takes_heads(packed, packed.size(2) / (heads + 2 * key_heads))) return {};
  return
      [=](const Tensors& t) { return Tensors{cuda::AttentionFunction::apply(t[0], heads, key_heads, causal, scale)}; };
}

namespace {

/// Whether ATen's FlashAttention takes heads of this kind: 16 bits, at most 256 channels, and an Ampere GPU or later.
bool flash_takes(const at::Tensor& q) {
  constexpr int64_t kMostChannels = 256;
  constexpr int kAmpere = 8;
  const bool is_16_bits = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  return is_here(q) && is_16_bits && q.size(3) % 8 == 0 && q.size(3) <= kMostChannels &&
         cuda::major_capability() >= kAmpere;
}

}  // namespace

at::Tensor attention_of_texts(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionOptions& options) {
  if (!flash_takes(q) || q.size(2) != k.size(2)) return {};
  const auto beside_each_other = [](const at::Tensor& heads) { return heads.transpose(1, 2).flatten(0, 1); };
  const at::Tensor y = cuda::flash_attention_of_texts(beside_each_other(q), beside_each_other(k), beside_each_other(v),
                                                      options);
  return y.view({q.size(0), q.size(2), q.size(1), q.size(3)}).transpose(1, 2);
}

at::Tensor attention_to_earlier(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options) {
  if (!flash_takes(q)) return {};
  return std::get<0>(at::_scaled_dot_product_flash_attention(q, k, v, options.dropout, /*is_causal=*/true,
                                                             /*return_debug_mask=*/false, options.scale));
}

}  // namespace gpu
}  // namespace gputrain::ops

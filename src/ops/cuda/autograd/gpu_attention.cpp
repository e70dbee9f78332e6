#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../../dispatch/gpu.hpp"
#include "../cudnn/packed_attention.hpp"
#include "../cudnn/texts_attention.hpp"
#include "flash_attention.hpp"
#include "gputrain/core/error.hpp"
#include "launching.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Computes `gradient` once per key, before the result is used: throws NoKernel if the result has a kernel but its
/// gradient has none, as cuDNN rejects some sizes, and the choice may have used part of a batch.
void need_gradient(const std::string& key, const std::function<void()>& gradient) {
  static std::mutex mutex;
  static std::set<std::string> tried;
  {
    const std::lock_guard lock(mutex);
    if (tried.contains(key)) return;
  }
  gradient();
  const std::lock_guard lock(mutex);
  tried.insert(key);
}

/// Calls `gradient` in a backward pass. NoKernel becomes an Error there: ATen cannot go on from our forward pass.
template <class Gradient>
auto of_own_forward(const Gradient& gradient) {
  GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "attention in one kernel has no second derivative");
  try {
    return gradient();
  } catch (const NoKernel& reason) {
    throw Error(ExitCode::environment, {.what = std::string("the gradient of attention failed: ") + reason.what(),
                                        .hint = "set GPUTRAIN_KERNELS=aten, and report this"});
  }
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& packed, int64_t heads, int64_t key_heads,
                            bool causal, double scale) {
    const PackedAttention attention{heads, key_heads, causal, scale};
    const Attended found = packed_attention(packed, attention);
    if (packed.requires_grad()) {
      need_gradient(fmt::format("{} {} {}/{} {}", c10::toString(packed.scalar_type()), fmt::join(packed.sizes(), "x"),
                                heads, key_heads, causal),
                    [&] { packed_attention_gradient(packed, attention, found, found.y); });
    }
    context->save_for_backward({packed, found.y, found.logarithms});
    context->saved_data["heads"] = heads;
    context->saved_data["key_heads"] = key_heads;
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    return found.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const PackedAttention attention{data["heads"].toInt(), data["key_heads"].toInt(), data["causal"].toBool(),
                                    data["scale"].toDouble()};
    const at::Tensor dpacked = of_own_forward([&] {
      return packed_attention_gradient(saved[0], attention, {saved[1], saved[2]}, gradients[0].contiguous());
    });
    return {dpacked, {}, {}, {}, {}};
  }
};

struct TextsFunction : torch::autograd::Function<TextsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<at::Tensor>& places, const TextsAttention& attention) {
    const TextHeads heads{q, k, v};
    const Attended found = texts_attention(heads, places, attention);
    if (q.requires_grad() || k.requires_grad() || v.requires_grad()) {
      const auto& [longest, causal, window, scale] = attention;
      const auto kind_of = [](const at::Tensor& x) {
        return fmt::format("{}/{}", fmt::join(x.sizes(), "x"), fmt::join(x.strides(), "x"));
      };
      need_gradient(fmt::format("texts {} {} {} {} {} {} {} {} {}", c10::toString(q.scalar_type()), kind_of(q),
                                kind_of(k), kind_of(v), places[0].size(0), longest, causal, window, scale),
                    [&] { texts_attention_gradient(heads, places, attention, found, found.y); });
    }
    variable_list saved{q, k, v, found.y, found.logarithms};
    saved.insert(saved.end(), places.begin(), places.end());
    context->save_for_backward(saved);
    context->saved_data["longest"] = attention.longest;
    context->saved_data["causal"] = attention.causal;
    context->saved_data["window"] = attention.window;
    context->saved_data["scale"] = attention.scale;
    return found.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const TextsAttention attention{data["longest"].toInt(), data["causal"].toBool(), data["window"].toInt(),
                                   data["scale"].toDouble()};
    const auto [dq, dk, dv] = of_own_forward([&] {
      return texts_attention_gradient({saved[0], saved[1], saved[2]}, {saved.begin() + 5, saved.end()}, attention,
                                      {saved[3], saved[4]}, gradients[0].contiguous());
    });
    return {dq, dk, dv, {}, {}};
  }
};

/// Returns whether cuDNN takes these heads, forward and backward: 16 bits, a multiple of 16 bytes, at most 128
/// channels.
bool takes_heads(const at::Tensor& packed, int64_t channels) {
  constexpr int64_t kMostChannels = 128;
  const bool is_16_bits = packed.scalar_type() == at::kBFloat16 || packed.scalar_type() == at::kHalf;
  return is_16_bits && packed.is_contiguous() && packed.numel() > 0 && channels % 8 == 0 && channels <= kMostChannels &&
         reinterpret_cast<uintptr_t>(packed.const_data_ptr()) % 16 == 0;
}

}  // namespace

at::Tensor attention_text_by_text(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionOptions& options) {
  AttentionOptions within = options;
  within.positions = within.lengths = at::Tensor();
  within.texts = {};
  const at::Tensor offsets = options.texts.offsets.to(at::kCPU, at::kLong);
  const auto* const begins = offsets.const_data_ptr<int64_t>();
  std::vector<int64_t> ends(begins + 1, begins + offsets.numel());
  ends.push_back(q.size(0));  // rows behind the texts, if there are any
  Tensors parts;
  int64_t begin = 0;
  for (const int64_t offset : ends) {
    const int64_t end = std::clamp(offset, begin, q.size(0));
    if (end == begin) continue;
    const auto heads = [&](const at::Tensor& x) {
      return x.slice(0, begin, end).repeat_interleave(q.size(1) / x.size(1), 1).unsqueeze(0).transpose(1, 2);
    };
    parts.push_back(attention(heads(q), heads(k), heads(v), within).transpose(1, 2).squeeze(0));
    begin = end;
  }
  return at::cat(parts);
}

}  // namespace cuda

namespace gpu {

OpImpl attention(const at::Tensor& packed, int64_t heads, int64_t key_heads, bool causal, double scale) {
  if (!is_here(packed) || !cuda::takes_heads(packed, packed.size(2) / (heads + 2 * key_heads))) return {};
  return
      [=](const Tensors& t) { return Tensors{cuda::AttentionFunction::apply(t[0], heads, key_heads, causal, scale)}; };
}

namespace {

/// Returns whether ATen's FlashAttention takes heads of this kind: 16 bits, at most 256 channels, and an Ampere GPU or
/// later.
bool flash_takes(const at::Tensor& q) {
  constexpr int64_t kMostChannels = 256;
  constexpr int kAmpere = 8;
  const bool is_16_bits = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  return is_here(q) && is_16_bits && q.size(3) % 8 == 0 && q.size(3) <= kMostChannels &&
         cuda::major_capability() >= kAmpere;
}

/// Returns options.texts of the first `rows` rows: a comparison may see part of them.
AttentionOptions first_rows(AttentionOptions options, int64_t rows) {
  options.texts.offsets = options.texts.offsets.clamp_max(rows);
  options.texts.tables = nullptr;
  return options;
}

/// Brings [batch, heads, time, channels] -> [batch x time, heads, channels].
at::Tensor beside_each_other(const at::Tensor& heads) { return heads.transpose(1, 2).flatten(0, 1); }

/// Does the reverse, to as many as `like`.
at::Tensor apart(const at::Tensor& y, const at::Tensor& like) {
  return y.view({like.size(0), like.size(2), like.size(1), like.size(3)}).transpose(1, 2);
}

}  // namespace

at::Tensor attention_in_room(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionOptions& options) {
  if (!flash_takes(q)) return {};
  return apart(cuda::flash_attention_in_room(beside_each_other(q), beside_each_other(k), beside_each_other(v), options),
               q);
}

at::Tensor attention_of_texts(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionOptions& options) {
  if (!flash_takes(q) || q.size(2) != k.size(2)) return {};
  const Tensors inputs{beside_each_other(q), beside_each_other(k), beside_each_other(v)};
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const auto of = [options, all = inputs[0].size(0)](const Tensors& t) {
    return t[0].size(0) == all ? options : first_rows(options, t[0].size(0));
  };
  const OpImpl reference = [of](const Tensors& t) {
    const bool is_exact = t[0].element_size() > 2;
    return Tensors{(is_exact ? cuda::attention_text_by_text : cuda::flash_attention_of_texts)(t[0], t[1], t[2], of(t))};
  };
  OpImpl custom;
  if (cuda::texts_attention_takes({inputs[0], inputs[1], inputs[2]}, options)) {
    custom = [of, attention = cuda::TextsAttention{options.texts.longest, options.causal, options.window, scale}](
                 const Tensors& t) {
      const auto places = cuda::text_places({t[0], t[1], t[2]}, of(t).texts);
      return Tensors{cuda::TextsFunction::apply(t[0], t[1], t[2], places, attention)};
    };
  }
  const std::string name = fmt::format("{}attention window {} by {} in {} texts of {}", options.causal ? "causal " : "",
                                       options.window, scale, options.texts.offsets.size(0) - 1, options.texts.longest);
  const at::Tensor y = run(name, inputs, {.batched = 3, .differentiable = 3, .whole = true}, custom, reference)[0];
  return apart(y, q);
}

at::Tensor attention_to_earlier(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options) {
  if (!flash_takes(q)) return {};
  return std::get<0>(at::_scaled_dot_product_flash_attention(q, k, v, options.dropout, /*is_causal=*/true,
                                                             /*return_debug_mask=*/false, options.scale));
}

}  // namespace gpu
}  // namespace gputrain::ops

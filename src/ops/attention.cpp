#include "gputrain/ops/attention.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/full.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "attention_mask.hpp"
#include "dispatch/gpu.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::ops {

namespace {

Texts texts_at(const at::Tensor& offsets, int64_t longest) {
  return {
      .offsets = offsets.to(at::kInt), .longest = longest, .tables = std::make_shared<std::map<int64_t, at::Tensor>>()};
}

struct Span {
  int64_t begin, end;
};

// ATen's backward pass on CPUs multiplies head by head. In 16 bits, oneDNN takes longer to prepare a product of a short
// sequence than to compute it: below this length fp32 is up to eight times as fast, and more exact.
constexpr int64_t kLeastPositionsInHalf = 256;

bool is_short_in_half(const at::Tensor& q) {
  return q.is_cpu() && q.element_size() == 2 && q.size(2) < kLeastPositionsInHalf;
}

/// Returns a key head for each head: neighbouring heads have the same one.
at::Tensor repeated(const at::Tensor& keys, int64_t groups) {
  auto sizes = keys.sizes().vec();
  sizes.insert(sizes.begin() + 2, groups);
  return keys.unsqueeze(2).expand(sizes).flatten(1, 2);
}

at::Tensor product_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                             const AttentionOptions& options) {
  const std::optional<at::Tensor> attended = mask.defined() ? std::optional(mask) : std::nullopt;
  const int64_t groups = q.size(1) / k.size(1);
  if (q.size(2) == 1 && groups > 1) {
    // The heads of a group read the same keys: as so many queries they share them.
    const at::Tensor queries = q.reshape({q.size(0), k.size(1), groups, q.size(3)});
    return at::scaled_dot_product_attention(queries, k, v, attended, options.dropout, false, options.scale)
        .reshape(q.sizes());
  }
  // On a GPU no kernel but the one that stores all weights takes both a mask and fewer key heads.
  if (mask.defined() && groups > 1 && !q.is_cpu()) {
    return product_attention(q, repeated(k, groups), repeated(v, groups), mask, options);
  }
  // A single query is the last position: it attends to all keys.
  const bool causal = options.causal && !mask.defined() && q.size(2) == k.size(2);
  return at::scaled_dot_product_attention(q, k, v, attended, options.dropout, causal, options.scale,
                                          /*enable_gqa=*/q.size(1) != k.size(1));
}

/// Returns the texts of a row that positions tell apart, up to its length.
std::vector<Span> texts_of(const AttentionOptions& options, int64_t row, int64_t time) {
  const int64_t* const places = options.positions.const_data_ptr<int64_t>() + row * time;
  if (options.lengths.defined()) time = std::min(time, options.lengths.const_data_ptr<int64_t>()[row]);
  std::vector<Span> texts;
  for (int64_t begin = 0, end = 0; begin < time; begin = end) {
    while (++end < time && places[end] != 0) {
    }
    texts.push_back({begin, end});
  }
  return texts;
}

/// Computes text after text, which costs the sum of their squares instead of the square of the row. The results of
/// padding are 0. Splits, because the backward pass then joins gradients instead of adding as many as there are texts.
at::Tensor attention_by_text(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionOptions& options) {
  const int64_t time = q.size(2);
  AttentionOptions tables = options, within = options;
  tables.positions = options.positions.contiguous();
  if (options.lengths.defined()) tables.lengths = options.lengths.contiguous();
  within.positions = within.lengths = at::Tensor();
  const Tensors q_rows = q.split(1), k_rows = k.split(1), v_rows = v.split(1);
  Tensors parts;  // one for each row: [1, time of the part, heads, channels]
  for (size_t row = 0; row < q_rows.size(); ++row) {
    std::vector<int64_t> sizes;
    for (const auto& [begin, end] : texts_of(tables, static_cast<int64_t>(row), time)) sizes.push_back(end - begin);
    const size_t texts = sizes.size();
    if (const int64_t rest = time - std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); rest > 0)
      sizes.push_back(rest);
    const Tensors queries = q_rows[row].split_with_sizes(sizes, 2), keys = k_rows[row].split_with_sizes(sizes, 2),
                  values = v_rows[row].split_with_sizes(sizes, 2);
    for (size_t i = 0; i < sizes.size(); ++i) {
      parts.push_back(i < texts ? attention(queries[i], keys[i], values[i], within).transpose(1, 2)
                                : at::zeros({1, sizes[i], q.size(1), v.size(3)}, v.options()));
    }
  }
  return at::cat(parts, 1).view({q.size(0), time, q.size(1), v.size(3)}).transpose(1, 2);
}

}  // namespace

Texts texts_of_positions(const at::Tensor& positions, int64_t most, int64_t longest) {
  const int64_t all = positions.numel(), texts = positions.size(0) * most;
  const at::Tensor begins = positions.flatten().eq(0);
  // The number of each text where it begins; elsewhere that of a place behind all offsets, which is not used.
  const at::Tensor numbers = at::where(begins, (begins.cumsum(0) - 1).clamp_max(texts + 1), texts + 1);
  const at::Tensor places = at::arange(all, positions.options());
  const at::Tensor offsets = at::full({texts + 2}, all, positions.options()).scatter_(0, numbers, places);
  return texts_at(offsets.narrow(0, 0, texts + 1), longest);
}

Texts texts_of_lengths(const at::Tensor& lengths, int64_t time) {
  const at::Tensor begins = at::arange(lengths.size(0), lengths.options()) * time;
  const at::Tensor both = at::stack({begins, begins + lengths.clamp(0, time)}, 1).flatten();
  return texts_at(at::constant_pad_nd(both, {0, 1}, lengths.size(0) * time), time);
}

KeyRoom key_room(const at::Tensor& place, const at::Tensor& begins, int64_t room) {
  const int64_t rows = begins.size(0);
  const at::Tensor numbers = at::arange(rows + 1, begins.options()), padded = at::constant_pad_nd(begins, {0, 1});
  return {.place = place,
          .begins = begins,
          .offsets = (numbers * room + padded).to(at::kInt),
          .lengths = (place + 1 - begins).to(at::kInt),
          .queries = numbers.to(at::kInt)};
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  GPUTRAIN_ASSERT(options.causal ? !options.lengths.defined() : q.size(2) == k.size(2),
                  "attention that is not causal has a key for each query, and it alone has lengths");
  if (is_short_in_half(q)) {
    return attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), options).to(q.scalar_type());
  }
  if (options.texts.offsets.defined()) {
    if (at::Tensor attended = gpu::attention_of_texts(q, k, v, options); attended.defined()) return attended;
  }
  if (options.room.place.defined()) {
    if (at::Tensor attended = gpu::attention_in_room(q, k, v, options); attended.defined()) return attended;
  }
  const bool has_mask = needs_mask(q, k, options);
  // Also for one query, which needs no mask: cuDNN would build a plan for each token that is generated.
  const bool sees_all_earlier = !options.positions.defined() && !options.room.place.defined() && options.causal;
  if (sees_all_earlier && (options.window == 0 || !has_mask) && q.size(2) < k.size(2)) {
    if (at::Tensor attended = gpu::attention_to_earlier(q, k, v, options); attended.defined()) return attended;
  }
  if (!has_mask) return product_attention(q, k, v, /*mask=*/{}, options);
  return options.positions.defined() && q.is_cpu() && q.size(2) == k.size(2)
             ? attention_by_text(q, k, v, options)
             : product_attention(q, k, v, visible_keys(q, k, options), options);
}

Heads unpacked(const at::Tensor& packed, int64_t heads, int64_t key_heads) {
  const int64_t channels = packed.size(2) / (heads + 2 * key_heads);
  // Split before the transpose: the backward pass then joins the three gradients in their original order.
  const auto parts = packed.view({packed.size(0), packed.size(1), -1, channels})
                         .split_with_sizes({heads, key_heads, key_heads}, /*dim=*/2);
  return {parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2)};
}

at::Tensor packed_attention(const at::Tensor& packed, int64_t heads, int64_t key_heads,
                            const AttentionOptions& options) {
  const int64_t channels = packed.size(2) / (heads + 2 * key_heads);
  const OpImpl reference = [=](const Tensors& t) {
    const auto [q, k, v] = unpacked(t[0], heads, key_heads);
    const at::Tensor y = attention(q, k, v, options).transpose(1, 2);
    return Tensors{y.reshape({t[0].size(0), t[0].size(1), heads * channels})};
  };
  const bool is_plain =
      options.dropout == 0 && options.window == 0 && !options.positions.defined() && !options.lengths.defined();
  if (!gpu::is_here(packed) || !is_plain) return reference({packed})[0];
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(channels)));
  const std::string name =
      fmt::format("{}attention {}/{} by {}", options.causal ? "causal " : "", heads, key_heads, scale);
  return run(name, {packed}, {.whole = true}, gpu::attention(packed, heads, key_heads, options.causal, scale),
             reference)[0];
}

namespace {

/// Returns how much of each frequency yarn keeps, of [channels / 2].
at::Tensor kept_by_yarn(int64_t channels, double theta, const RotaryScaling& scaling) {
  const auto count = static_cast<double>(channels);
  const auto place_of = [&](double turns) {  // a channel pair's, perhaps between two
    return count * std::log(scaling.original_positions / (turns * 2 * std::acos(-1.0))) / (2 * std::log(theta));
  };
  double first = place_of(scaling.high_turns), last = place_of(scaling.low_turns);
  if (scaling.whole_channels) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, count - 1);
  if (first == last) last += 0.001;  // prevents a division by zero, as in transformers
  const at::Tensor places = at::arange(channels / 2, at::TensorOptions().dtype(at::kFloat));
  return 1 - ((places - first) / (last - first)).clamp(0, 1);
}

at::Tensor scaled_by_yarn(const at::Tensor& wavelengths, int64_t channels, double theta, const RotaryScaling& scaling) {
  const at::Tensor kept = kept_by_yarn(channels, theta, scaling);
  return (wavelengths * scaling.factor).reciprocal() * (1 - kept) + wavelengths.reciprocal() * kept;
}

// Rounded step by step in fp32, so that the frequencies are those of transformers bit by bit.
at::Tensor scaled(const at::Tensor& frequencies, const RotaryScaling& scaling) {
  if (scaling.kind == RotaryScaling::Kind::none) return frequencies;
  if (scaling.kind == RotaryScaling::Kind::linear) return frequencies / scaling.factor;
  const at::Tensor wavelengths = frequencies.reciprocal() * (2 * std::acos(-1.0));
  const at::Tensor turns = wavelengths.reciprocal() * scaling.original_positions;
  const at::Tensor kept = ((turns - scaling.low_turns) / (scaling.high_turns - scaling.low_turns)).clamp(0, 1);
  return (1 - kept) * frequencies / scaling.factor + kept * frequencies;
}

}  // namespace

RotaryTable::RotaryTable(int64_t positions, int64_t channels, double theta, const at::TensorOptions& options,
                         const RotaryScaling& scaling) {
  // Angles are rounded to fp32 on purpose: models were trained with these, and exact ones differ at large positions.
  const auto single = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor exponents = at::arange(0, channels, 2, single).div(static_cast<double>(channels));
  const at::Tensor wavelengths = at::pow(theta, exponents);
  const at::Tensor frequencies = scaling.kind == RotaryScaling::Kind::yarn
                                     ? scaled_by_yarn(wavelengths, channels, theta, scaling)
                                     : scaled(at::reciprocal(wavelengths), scaling);
  const at::Device on = options.device().is_meta() ? at::kMeta : at::kCPU;  // nothing is computed for sizes alone
  const at::Tensor angles = at::outer(at::arange(positions, single.device(on)), frequencies.to(on));
  const auto grown = [&](const at::Tensor& table) { return scaling.growth == 1 ? table : table * scaling.growth; };
  cosine = grown(at::cos(angles)).to(options);
  sine = grown(at::sin(angles)).to(options);
}

RotaryTable RotaryTable::at(const at::Tensor& positions) const {
  const auto rows = [&](const at::Tensor& table) {
    const at::Tensor found = table.index_select(0, positions.reshape(-1));
    return positions.size(0) == 1 ? found : found.view({positions.size(0), 1, positions.size(1), -1});
  };
  return {rows(cosine), rows(sine)};
}

}  // namespace gputrain::ops

// cuDNN's fused attention, computed by its formulas in fp64 on the CPU and rounded where cuDNN rounds.
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <fmt/format.h>

#include "../../../src/ops/cuda/autograd/flash_attention.hpp"
#include "../../../src/ops/cuda/cudnn/cudnn_graph.hpp"
#include "../../../src/ops/cuda/cudnn/packed_attention.hpp"
#include "../../../src/ops/dispatch/kernel_autotuner.hpp"
#include "gputrain/ops/attention.hpp"
#include "support/lanes/emulated_attention.hpp"

namespace gputrain::testing_support {
bool has_attention_gradient = true;
std::vector<std::string> texts_graphs;
int64_t most_rows_of_texts = INT64_MAX;
}  // namespace gputrain::testing_support

namespace gputrain::ops::cuda {
namespace {

/// Each key head is repeated for every query head that uses it; all in fp64.
Heads repeated(const Heads& heads) {
  const int64_t group = heads.q.size(1) / heads.k.size(1);
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
  return {wide(heads.q), wide(heads.k).repeat_interleave(group, 1), wide(heads.v).repeat_interleave(group, 1)};
}

Heads repeated(const at::Tensor& packed, const PackedAttention& attention) {
  return repeated(unpacked(packed, attention.heads, attention.key_heads));
}

/// Which keys a query attends to, and how.
struct Reach {
  bool causal;
  int64_t window;  // 0: no limit
  double scale;
};

Reach reach_of(const PackedAttention& attention) { return {attention.causal, 0, attention.scale}; }

at::Tensor scores(const Heads& heads, const Reach& reach) {
  at::Tensor all = at::matmul(heads.q, heads.k.transpose(2, 3)) * reach.scale;
  const at::Tensor places = at::arange(all.size(2)), ahead = places.unsqueeze(0) - places.unsqueeze(1);
  if (reach.causal) all = all.masked_fill(ahead.gt(0), -INFINITY);
  return reach.window > 0 ? all.masked_fill(ahead.abs().ge(reach.window), -INFINITY) : all;
}

/// [batch, heads, time, channels] -> [batch, time, heads, channels]; sums over the query heads that share a key head.
at::Tensor beside_each_other(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), heads, -1, x.size(2), x.size(3)}).sum(2).transpose(1, 2);
}

/// cuDNN's kernels round to the operands' type what they pass to the tensor cores, and each query head's gradients
/// before they sum those of a key head.
at::Tensor rounded(const at::Tensor& x, at::ScalarType type) { return x.to(type).to(at::kDouble); }

at::Tensor apart(const at::Tensor& y, int64_t heads) {
  return y.to(at::kDouble).view({y.size(0), y.size(1), heads, -1}).transpose(1, 2);
}

/// y and logarithms, [batch, heads, time, ...].
std::pair<at::Tensor, at::Tensor> attended(const Heads& heads, const Reach& reach, at::ScalarType type) {
  const at::Tensor s = scores(heads, reach), logarithms = at::logsumexp(s, {3});
  return {at::matmul(rounded(at::exp(s - logarithms.unsqueeze(3)), type), heads.v), logarithms};
}

/// Gradients for each query head, [batch, heads, time, channels].
Heads gradients_of(const Heads& heads, const Reach& reach, at::ScalarType type, const at::Tensor& y,
                   const at::Tensor& dy, const at::Tensor& logarithms) {
  const at::Tensor p = at::exp(scores(heads, reach) - logarithms.unsqueeze(3));
  const at::Tensor ds =
      rounded(p * (at::matmul(dy, heads.v.transpose(2, 3)) - (dy * y).sum({3}, /*keepdim=*/true)), type);
  return {at::matmul(ds, heads.k) * reach.scale, rounded(at::matmul(ds.transpose(2, 3), heads.q) * reach.scale, type),
          rounded(at::matmul(rounded(p, type).transpose(2, 3), dy), type)};
}

}  // namespace

Attended packed_attention(const at::Tensor& packed, const PackedAttention& attention) {
  const auto [y, logarithms] = attended(repeated(packed, attention), reach_of(attention), packed.scalar_type());
  return {.y = beside_each_other(y, attention.heads).flatten(2).to(packed.scalar_type()),
          .logarithms = logarithms.to(at::kFloat)};
}

at::Tensor packed_attention_gradient(const at::Tensor& packed, const PackedAttention& attention, const Attended& found,
                                     const at::Tensor& dy) {
  if (!testing_support::has_attention_gradient) throw NoKernel("refused");
  const Heads d = gradients_of(repeated(packed, attention), reach_of(attention), packed.scalar_type(),
                               apart(found.y, attention.heads), apart(dy, attention.heads), found.logarithms);
  return at::cat({beside_each_other(d.q, attention.heads), beside_each_other(d.k, attention.key_heads),
                  beside_each_other(d.v, attention.key_heads)},
                 2)
      .flatten(2)
      .to(packed.scalar_type());
}

at::Tensor flash_attention_of_texts(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options) {
  return attention_text_by_text(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), options).to(q.scalar_type());
}

namespace {

/// The memory that a text has of a tensor, as cuDNN addresses it: from its offset on, in elements, head by head within
/// rows that are `row` elements apart.
class TextMemory {
 public:
  TextMemory(const TextsGraph& graph, const std::vector<void*>& tensors, int64_t text)
      : tensors_(tensors), text_(text), length_(static_cast<const int32_t*>(tensors[3])[text]) {
    TORCH_CHECK(length_ >= 0 && length_ <= graph.longest, "a text of ", length_);
  }
  bool is_empty() const { return length_ == 0; }

  /// [1, heads, length, channels]
  at::Tensor of(size_t tensor, size_t offsets, int64_t heads, int64_t channels, int64_t row,
                at::ScalarType type) const {
    const int64_t begin = static_cast<const int64_t*>(tensors_[offsets])[text_];
    const auto bytes = static_cast<int64_t>(c10::elementSize(type));
    return at::from_blob(static_cast<std::byte*>(tensors_[tensor]) + begin * bytes, {1, length_, heads, channels},
                         {0, row, channels, 1}, at::TensorOptions().dtype(type))
        .transpose(1, 2);
  }

 private:
  const std::vector<void*>& tensors_;
  int64_t text_, length_;
};

void run_text(const TextsGraph& g, const TextMemory& memory) {
  const at::ScalarType type = g.element == Element::fp16 ? at::kHalf : at::kBFloat16;
  const int64_t row = g.heads * g.channels, key_row = g.key_heads * g.channels;
  const Reach reach{g.causal, g.window, static_cast<double>(g.scale)};
  const Heads heads = repeated({.q = memory.of(0, 4, g.heads, g.channels, g.query_row, type),
                                .k = memory.of(1, 5, g.key_heads, g.channels, g.key_row, type),
                                .v = memory.of(2, 6, g.key_heads, g.channels, g.value_row, type)});
  const auto result = [&](size_t tensor) { return memory.of(tensor, 7, g.heads, g.channels, row, type); };
  const auto logarithms = [&](size_t tensor) { return memory.of(tensor, 8, g.heads, 1, g.heads, at::kFloat); };
  if (g.kind == TextsGraph::Kind::forward) {
    const auto [y, logs] = attended(heads, reach, type);
    result(9).copy_(y);
    logarithms(10).copy_(logs.unsqueeze(3));
    return;
  }
  const Heads d = gradients_of(heads, reach, type, result(9).to(at::kDouble), result(10).to(at::kDouble),
                               logarithms(11).squeeze(3));
  result(13).copy_(d.q);
  const auto key_gradient = [&](size_t tensor, const at::Tensor& each) {
    memory.of(tensor, 12, g.key_heads, g.channels, key_row, type)
        .copy_(beside_each_other(each, g.key_heads).transpose(1, 2));
  };
  key_gradient(14, d.k);
  key_gradient(15, d.v);
}

}  // namespace

/// Replaces cuDNN: reads lengths and offsets as its documentation says.
void run_graph(const TextsGraph& graph, const std::vector<void*>& tensors) {
  if (graph.kind == TextsGraph::Kind::gradient && !testing_support::has_attention_gradient) throw NoKernel("refused");
  if (graph.rows > testing_support::most_rows_of_texts) TORCH_CHECK_WITH(OutOfMemoryError, false, "too many rows");
  for (int64_t text = 0; text < graph.texts; ++text) {
    const TextMemory memory(graph, tensors, text);
    if (!memory.is_empty()) run_text(graph, memory);
  }
  testing_support::texts_graphs.push_back(graph.key());
}

std::string TextsGraph::key() const { return fmt::format("{} of {} in {}", texts, longest, rows); }

at::Tensor flash_attention_in_room(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOptions& options) {
  const KeyRoom& room = options.room;
  TORCH_CHECK(room.queries.equal(at::arange(q.size(0) + 1, room.queries.options())), "a query of each row");
  const at::Tensor offsets = room.offsets.to(at::kLong), lengths = room.lengths.to(at::kLong);
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < q.size(0); ++row) {
    int64_t begin = offsets.const_data_ptr<int64_t>()[row], count = lengths.const_data_ptr<int64_t>()[row];
    TORCH_CHECK(count > 0 && begin + count <= offsets.const_data_ptr<int64_t>()[row + 1], "keys of another row");
    if (options.window > 0 && count > options.window) {
      begin += count - options.window;
      count = options.window;
    }
    const auto heads = [&](const at::Tensor& x, int64_t first, int64_t size) {
      return x.narrow(0, first, size).unsqueeze(0).transpose(1, 2).to(at::kDouble);
    };
    const at::Tensor y = attention(heads(q, row, 1), heads(k, begin, count), heads(v, begin, count),
                                   {.causal = true, .scale = options.scale});
    rows.push_back(y.transpose(1, 2).squeeze(0));
  }
  return at::cat(rows).to(q.scalar_type());
}

}  // namespace gputrain::ops::cuda

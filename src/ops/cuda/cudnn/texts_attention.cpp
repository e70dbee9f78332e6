#include "texts_attention.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include "../autograd/launching.hpp"
#include "cudnn_graph.hpp"

namespace gputrain::ops::cuda {
namespace {

/// Positions in text_places().
enum Place : size_t { kLengths, kQueries, kKeys, kValues, kResults, kLogarithms, kKeyGradients };

int64_t rounded_up(int64_t count, int64_t least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(count, least))));
}

/// Returns the next multiple of a quarter of its highest power of two. Memory of the gradient goes by these rows.
int64_t class_of(int64_t rows) {
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows))) / 4);
  return (rows + step - 1) / step * step;
}

TextsGraph texts_graph(TextsGraph::Kind kind, const TextHeads& heads, const std::vector<at::Tensor>& places,
                       const TextsAttention& attention) {
  constexpr int64_t kLeastRows = 128;  // rows of a block of the kernels
  return {.kind = kind,
          .element = element_of(heads.q),
          .texts = places[kLengths].size(0),
          .longest = rounded_up(attention.longest, kLeastRows),
          .rows = class_of(heads.q.size(0)),
          .heads = heads.q.size(1),
          .key_heads = heads.k.size(1),
          .channels = heads.q.size(2),
          .query_row = heads.q.stride(0),
          .key_row = heads.k.stride(0),
          .value_row = heads.v.stride(0),
          .causal = attention.causal,
          .window = attention.window,
          .scale = static_cast<float>(attention.scale),
          .deterministic = at::globalContext().deterministicAlgorithms()};
}

/// Returns the first inputs of both graphs.
std::vector<void*> addresses_of(const TextHeads& heads, const std::vector<at::Tensor>& places) {
  std::vector<void*> all{address_of(heads.q), address_of(heads.k), address_of(heads.v)};
  for (size_t place = kLengths; place <= kLogarithms; ++place) all.push_back(address_of(places[place]));
  return all;
}

at::Tensor rows_like(const at::Tensor& heads) { return at::empty(heads.sizes(), heads.options()); }

}  // namespace

bool texts_attention_takes(const TextHeads& heads, const AttentionOptions& options) {
  constexpr int kHopper = 9, kBlackwell = 10;
  const int capability = major_capability();
  const int64_t channels = heads.q.size(2), most_channels = capability == kHopper ? 256 : 128;
  // On Hopper, equal bits cost memory of texts x longest x longest.
  const bool is_known =
      capability == kBlackwell || (capability == kHopper && !at::globalContext().deterministicAlgorithms());
  const auto is_in_rows = [](const at::Tensor& x) {
    return x.stride(2) == 1 && x.stride(1) == x.size(2) && x.stride(0) % 8 == 0 &&
           x.stride(0) >= x.size(1) * x.size(2) && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  };
  // With channels of another multiple the frontend ignores the number of rows: memory of texts x longest.
  return is_known && options.dropout == 0 && channels % 16 == 0 && channels <= most_channels && heads.q.numel() > 0 &&
         is_in_rows(heads.q) && is_in_rows(heads.k) && is_in_rows(heads.v);
}

std::vector<at::Tensor> text_places(const TextHeads& heads, const Texts& texts) {
  constexpr int64_t kLeastTexts = 8;
  const int64_t number = texts.offsets.size(0) - 1, capacity = rounded_up(number, kLeastTexts);
  const auto made_once = [&](int64_t row, const auto& make) {
    if (texts.tables == nullptr) return make();
    at::Tensor& table = (*texts.tables)[row];
    if (!table.defined()) table = make();
    return table;
  };
  const at::Tensor rows = made_once(1, [&] {
    return at::constant_pad_nd(texts.offsets.to(at::kLong), {0, capacity - number}, heads.q.size(0));
  });
  const auto begins = [&](int64_t row) { return row == 1 ? rows : made_once(row, [&] { return rows * row; }); };
  const at::Tensor lengths =
      made_once(0, [&] { return (rows.narrow(0, 1, capacity) - rows.narrow(0, 0, capacity)).to(at::kInt); });
  return {lengths,
          begins(heads.q.stride(0)),
          begins(heads.k.stride(0)),
          begins(heads.v.stride(0)),
          begins(heads.q.size(1) * heads.q.size(2)),
          begins(heads.q.size(1)),
          begins(heads.k.size(1) * heads.k.size(2))};
}

Attended texts_attention(const TextHeads& heads, const std::vector<at::Tensor>& places,
                         const TextsAttention& attention) {
  const TextsGraph graph = texts_graph(TextsGraph::Kind::forward, heads, places, attention);
  const Attended found{
      .y = rows_like(heads.q),
      .logarithms = at::empty({heads.q.size(0), heads.q.size(1)}, heads.q.options().dtype(at::kFloat))};
  std::vector<void*> tensors = addresses_of(heads, places);
  tensors.insert(tensors.end(), {address_of(found.y), address_of(found.logarithms)});
  run_graph(graph, tensors);
  return found;
}

TextHeads texts_attention_gradient(const TextHeads& heads, const std::vector<at::Tensor>& places,
                                   const TextsAttention& attention, const Attended& found, const at::Tensor& dy) {
  const TextsGraph graph = texts_graph(TextsGraph::Kind::gradient, heads, places, attention);
  const TextHeads gradients{.q = rows_like(heads.q), .k = rows_like(heads.k), .v = rows_like(heads.v)};
  std::vector<void*> tensors = addresses_of(heads, places);
  tensors.insert(tensors.end(),
                 {address_of(found.y), address_of(dy), address_of(found.logarithms), address_of(places[kKeyGradients]),
                  address_of(gradients.q), address_of(gradients.k), address_of(gradients.v)});
  run_graph(graph, tensors);
  return gradients;
}

}  // namespace gputrain::ops::cuda

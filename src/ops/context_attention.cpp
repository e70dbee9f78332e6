#include "gputrain/ops/context_attention.hpp"

#include <algorithm>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gputrain/core/error.hpp"

namespace gputrain::ops {
namespace {

/// Returns the number of the first or second chunk of a rank, from the begin of the text.
int64_t chunk_of(int64_t rank, int64_t ranks, int64_t which) { return which == 0 ? rank : 2 * ranks - 1 - rank; }

/// Chunks of all ranks, one rank after the other [2 * ranks, ...] -> in the order of the text, or the other way round.
at::Tensor reordered(const at::Tensor& chunks, int64_t ranks, bool to_text) {
  std::vector<at::Tensor> parts(static_cast<size_t>(2 * ranks));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (const int64_t which : {0, 1}) {
      const int64_t gathered = 2 * rank + which, chunk = chunk_of(rank, ranks, which);
      parts[static_cast<size_t>(to_text ? chunk : gathered)] = chunks.narrow(0, to_text ? gathered : chunk, 1);
    }
  }
  return at::cat(parts);
}

/// The keys and values of a part [2, batch, heads, time of the part, channels] -> of the whole text. The gradient of
/// each is the sum over the ranks, which all attended to it.
struct GatheredKeys : torch::autograd::Function<GatheredKeys> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& part, comm::Group* group) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    const int64_t ranks = group->size();
    const at::Tensor own = part.unflatten(3, {2, -1}).movedim(3, 0).contiguous();  // [2 chunks, 2, ...]
    std::vector<int64_t> sizes = own.sizes().vec();
    sizes[0] *= ranks;
    const at::Tensor all = at::empty(sizes, own.options());
    group->all_gather_into(all, own, "keys and values").wait();
    return reordered(all, ranks, /*to_text=*/true).movedim(0, 3).flatten(3, 4);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* group = reinterpret_cast<comm::Group*>(context->saved_data["group"].toInt());
    const int64_t ranks = group->size();
    const at::Tensor all =
        reordered(gradients[0].unflatten(3, {2 * ranks, -1}).movedim(3, 0), ranks, /*to_text=*/false).contiguous();
    std::vector<int64_t> sizes = all.sizes().vec();
    sizes[0] = 2;
    const at::Tensor own = at::empty(sizes, all.options());
    group->reduce_scatter_sum(all, own, "gradients of keys and values").wait();
    return {own.movedim(0, 3).flatten(3, 4), at::Tensor()};
  }
};

}  // namespace

at::Tensor text_part(const at::Tensor& whole, const comm::Group& group, int64_t padding) {
  const int64_t ranks = group.size(), chunks = 2 * ranks;
  const int64_t missing = (chunks - whole.size(1) % chunks) % chunks;
  const at::Tensor filled = missing > 0 ? at::constant_pad_nd(whole, {0, missing}, padding) : whole;
  const int64_t size = filled.size(1) / chunks;
  const auto chunk = [&](int64_t which) { return filled.narrow(1, size * chunk_of(group.rank(), ranks, which), size); };
  return at::cat({chunk(0), chunk(1)}, 1);
}

at::Tensor context_attention(const Heads& heads, const AttentionOptions& options, comm::Group& group) {
  GPUTRAIN_ASSERT(options.causal && !options.lengths.defined(), "ranks share causal texts only");
  const at::Tensor whole = GatheredKeys::apply(at::stack({heads.k, heads.v}), &group);
  const int64_t size = heads.q.size(2) / 2;
  std::vector<at::Tensor> attended;
  for (const int64_t which : {0, 1}) {
    const int64_t begin = size * chunk_of(group.rank(), group.size(), which);
    const int64_t first = options.window > 0 ? std::max<int64_t>(0, begin - options.window + 1) : 0;
    AttentionOptions of_chunk = options;
    if (options.positions.defined()) of_chunk.positions = options.positions.narrow(1, which * size, size);
    const at::Tensor seen = whole.narrow(3, first, begin + size - first);
    attended.push_back(
        attention(heads.q.narrow(2, which * size, size), seen.select(0, 0), seen.select(0, 1), of_chunk));
  }
  return at::cat(attended, 2);
}

}  // namespace gputrain::ops

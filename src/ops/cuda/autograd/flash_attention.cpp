#include "flash_attention.hpp"

#include <optional>
#include <tuple>

#include <ATen/ops/_flash_attention_forward.h>

namespace gputrain::ops::cuda {

at::Tensor flash_attention_of_texts(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options) {
  std::optional<int64_t> left, right;  // keys beyond the query's own, to each side; none: no limit
  if (options.window > 0) left = options.window - 1;
  if (options.window > 0 && !options.causal) right = left;
  const at::Tensor& offsets = options.texts.offsets;
  const int64_t longest = options.texts.longest;
  return std::get<0>(at::_flash_attention_forward(q, k, v, offsets, offsets, longest, longest, options.dropout,
                                                  options.causal, /*return_debug_mask=*/false, options.scale, left,
                                                  right));
}

at::Tensor flash_attention_in_room(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOptions& options) {
  const auto& room = options.room;
  std::optional<int64_t> left, right;
  if (options.window > 0) {
    left = options.window - 1;
    right = 0;
  }
  // Not causal: the lengths end with the query's own key.
  return std::get<0>(at::_flash_attention_forward(q, k, v, room.queries, room.offsets, /*max_q=*/1,
                                                  /*max_k=*/k.size(0) / q.size(0), options.dropout,
                                                  /*is_causal=*/false, /*return_debug_mask=*/false, options.scale, left,
                                                  right, room.lengths));
}

}  // namespace gputrain::ops::cuda

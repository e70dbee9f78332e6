#include "attention_mask.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "gputrain/ops/recorded.hpp"

namespace gputrain::ops {

bool needs_mask(const at::Tensor& q, const at::Tensor& k, const AttentionOptions& options) {
  const bool window_hides = options.window > 0 && (options.window < k.size(2) || is_recorded());
  const bool is_continued = options.causal && q.size(2) > 1 && q.size(2) != k.size(2);
  return options.room.place.defined() || options.positions.defined() || options.lengths.defined() || window_hides || is_continued;
}

namespace {

/// Returns visible_keys() without causality; undefined: every key is visible.
at::Tensor visible_around(const at::Tensor& q, const AttentionOptions& options) {
  const int64_t time = q.size(2);
  const at::Tensor places = at::arange(time, at::TensorOptions().dtype(at::kLong).device(q.device()));
  at::Tensor visible;
  const auto restrict = [&](const at::Tensor& more) { visible = visible.defined() ? visible.logical_and(more) : more; };
  if (options.window > 0 && (options.window < time || is_recorded())) {
    restrict((places.unsqueeze(1) - places).abs().lt(options.window).view({1, 1, time, time}));
  }
  if (options.positions.defined()) {
    const at::Tensor begins = places - options.positions;  // begin of each token's text
    restrict(begins.unsqueeze(1).eq(begins.unsqueeze(2)).unsqueeze(1));
  }
  if (options.lengths.defined()) {
    // A row without keys has one, so that no sum of weights is 0; so has padding that the rest hides everything from.
    at::Tensor present = places.lt(options.lengths.clamp_min(1).unsqueeze(1)).view({-1, 1, 1, time});
    if (visible.defined()) present = present.logical_or(places.unsqueeze(1).eq(places));
    restrict(present);
  }
  return visible;
}

/// Returns visible_keys() of a query in memory with room for more keys.
at::Tensor visible_in_room(const at::Tensor& k, const AttentionOptions& options) {
  const auto& room = options.room;
  const at::Tensor places = at::arange(k.size(2), room.place.options()), distance = room.place - places;
  at::Tensor visible = distance.ge(0).logical_and(places.ge(room.begins.unsqueeze(1)));
  if (options.window > 0) visible = visible.logical_and(distance.lt(options.window));
  return visible.view({-1, 1, 1, k.size(2)});
}

}  // namespace

at::Tensor visible_keys(const at::Tensor& q, const at::Tensor& k, const AttentionOptions& options) {
  if (options.room.place.defined()) return visible_in_room(k, options);
  if (!options.causal) return visible_around(q, options);
  const int64_t time = q.size(2), keys = k.size(2);
  const auto whole = at::TensorOptions().dtype(at::kLong).device(q.device());
  const at::Tensor places = at::arange(keys - time, keys, whole).unsqueeze(1);  // places of the queries among the keys
  const at::Tensor distance = places - at::arange(keys, whole);
  at::Tensor visible = distance.ge(0);
  if (options.window > 0) visible = visible.logical_and(distance.lt(options.window));
  if (!options.positions.defined()) return visible.view({1, 1, time, keys});
  return visible.logical_and(distance.le(options.positions.unsqueeze(-1))).unsqueeze(1);
}

}  // namespace gputrain::ops

#include "gputrain/nn/key_values.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "gputrain/core/error.hpp"

namespace gputrain::nn {
namespace {

constexpr int64_t kLeastRoom = 64;  // tokens

/// Copies new tokens behind the first `length` in the room, which grows when it is full. Returns all of them.
at::Tensor appended(at::Tensor& room, int64_t length, const at::Tensor& added) {
  const int64_t needed = length + added.size(2);
  if (!room.defined() || room.size(2) < needed) {
    const int64_t tokens = std::max({kLeastRoom, 2 * length, needed});
    at::Tensor larger = at::empty({added.size(0), added.size(1), tokens, added.size(3)}, added.options());
    if (length > 0) larger.narrow(2, 0, length).copy_(room.narrow(2, 0, length));
    room = larger;
  }
  room.narrow(2, length, added.size(2)).copy_(added);
  return room.narrow(2, 0, needed);
}

/// Zeros with room for so many tokens behind what is there. A token's heads lie side by side, as FlashAttention reads
/// them.
at::Tensor with_room(const at::Tensor& filled, int64_t tokens) {
  const at::Tensor room = at::zeros({filled.size(0), tokens, filled.size(1), filled.size(3)}, filled.options());
  room.narrow(1, 0, filled.size(2)).copy_(filled.transpose(1, 2));
  return room.transpose(1, 2);
}

/// Returns some rows, in the same order in memory.
at::Tensor rows_of(const at::Tensor& room, const at::Tensor& rows) {
  return room.transpose(1, 2).index_select(0, rows).transpose(1, 2);
}

}  // namespace

void KeyValues::reserve(int64_t tokens) {
  keys_ = with_room(keys_, tokens);
  values_ = with_room(values_, tokens);
  key_room_ = value_room_ = at::Tensor();
  length_ = tokens;
  is_reserved_ = true;
}

void KeyValues::write(const at::Tensor& keys, const at::Tensor& values, const at::Tensor& place) {
  GPUTRAIN_ASSERT(is_reserved_, "no room was reserved");
  keys_.index_copy_(2, place, keys);
  values_.index_copy_(2, place, values);
}

void KeyValues::append(const at::Tensor& keys, const at::Tensor& values) {
  if (at::GradMode::is_enabled()) {
    keys_ = length_ > 0 ? at::cat({keys_, keys}, 2) : keys;
    values_ = length_ > 0 ? at::cat({values_, values}, 2) : values;
    key_room_ = value_room_ = at::Tensor();
  } else {
    if (length_ > 0 && !key_room_.defined()) {
      key_room_ = keys_;
      value_room_ = values_;
    }
    keys_ = appended(key_room_, length_, keys);
    values_ = appended(value_room_, length_, values);
  }
  length_ += keys.size(2);
}

void KeyValues::keep_rows(const at::Tensor& rows) {
  if (length_ == 0) return;
  if (is_reserved_) {
    keys_ = rows_of(keys_, rows);
    values_ = rows_of(values_, rows);
    return;
  }
  keys_ = key_room_ = keys_.index_select(0, rows);
  values_ = value_room_ = values_.index_select(0, rows);
}

}  // namespace gputrain::nn

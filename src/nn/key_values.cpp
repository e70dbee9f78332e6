#include "gputrain/nn/key_values.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace gputrain::nn {
namespace {

constexpr int64_t kLeastRoom = 64;  // tokens

/// Copies new tokens behind the first `length` in the room, which grows where it is full. Returns all of them.
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

}  // namespace

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
  keys_ = key_room_ = keys_.index_select(0, rows);
  values_ = value_room_ = values_.index_select(0, rows);
}

}  // namespace gputrain::nn

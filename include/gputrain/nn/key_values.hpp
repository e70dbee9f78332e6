// The keys and values that a layer of attention keeps of the tokens that it has read.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::nn {

/// Keys and values of tokens, with room for more of them: a new token costs a copy of its own keys. Copies of this
/// object share the room, so only one of them may go on. With reserve() the sizes stay the same from token to token.
class KeyValues {
 public:
  int64_t length() const noexcept { return length_; }  // tokens

  /// Returns [batch, key heads, length, channels of a head]. Undefined while the length is 0.
  const at::Tensor& keys() const noexcept { return keys_; }
  const at::Tensor& values() const noexcept { return values_; }

  /// Adds new tokens, in the same layout. With gradients it copies all, so that earlier results stay as they were.
  void append(const at::Tensor& keys, const at::Tensor& values);

  /// Makes room for `tokens` in all, which is the length from here on; new places are zeros. append() is then over.
  void reserve(int64_t tokens);
  /// Writes, after reserve(), keys and values of one token [batch, key heads, 1, channels] at `place`, int64 [1] on
  /// their device, in the same memory each time.
  void write(const at::Tensor& keys, const at::Tensor& values, const at::Tensor& place);

  /// Goes on with these rows of the batch: int64 [rows].
  void keep_rows(const at::Tensor& rows);

 private:
  int64_t length_ = 0;
  at::Tensor keys_, values_;          // the part of the room that is filled
  at::Tensor key_room_, value_room_;  // [batch, key heads, room, channels]
  bool is_reserved_ = false;
};

}  // namespace gputrain::nn

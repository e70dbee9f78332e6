// Scaled dot-product attention and rotary positions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace gputrain::ops {

/// The texts of a batch [rows, time], one after the other, for kernels that compute the square of a text instead of
/// that of a row. The texts cover all rows; padding counts as texts of its own.
struct Texts {
  at::Tensor offsets = {};  // int32 [texts + 1]: begin of each among rows x time; the last texts may be empty
  int64_t longest = 0;      // no text has more positions
  /// Tables that kernels derive from the offsets, by elements of a row; the first layer makes them for all. May be
  /// null.
  std::shared_ptr<std::map<int64_t, at::Tensor>> tables = {};
};
/// Finds the texts in positions [rows, time], in which each text begins with 0; a row has at most `most`. Reads nothing
/// on the host.
Texts texts_of_positions(const at::Tensor& positions, int64_t most, int64_t longest);
/// Makes a text of the first `lengths` [rows] positions of each row, and one of the padding behind it.
Texts texts_of_lengths(const at::Tensor& lengths, int64_t time);

/// The place of the one query of each row among keys, whose memory has room for more of them. Kernels read it all from
/// tensors, so that the same operators serve any number of tokens. Undefined: the last key is the query's own.
struct KeyRoom {
  at::Tensor place = {};   // int64 [1]: the query's own key
  at::Tensor begins = {};  // int64 [batch]: begin of each row's text, behind padding
  // The same for FlashAttention, int32: begin of each text among rows x room, [batch + 1]; number of its keys up to the
  // query's own, [batch]; places of the queries, [batch + 1].
  at::Tensor offsets = {}, lengths = {}, queries = {};
};
/// Makes the room of keys for a query. `room`: keys that each row has room for.
KeyRoom key_room(const at::Tensor& place, const at::Tensor& begins, int64_t room);

/// The keys to which a query attends, and how. Queries are the last positions of the keys: query i stands at key i +
/// (key time - query time). If attention is not causal, there are as many queries as keys.
struct AttentionOptions {
  bool causal = true;           // a query attends to its own place and those before it; false: to both sides
  double dropout = 0;           // on the attention weights; above 0, a CPU stores all attention weights
  std::optional<double> scale;  // default: 1 / sqrt(channels of a head)
  /// A query attends to keys less than so many places away; 0: no limit (Beltagy et al., arXiv:2004.05150).
  int64_t window = 0;
  /// int64 [batch, time], the place of each query in its own text. A query attends to no key of another text, so that
  /// several texts share a row, or rows begin with padding. Undefined: one text a row.
  at::Tensor positions = {};
  /// For attention that is not causal: int64 [batch], the number of keys of each row. Later keys are padding, and their
  /// results mean nothing. Undefined: there is no padding.
  at::Tensor lengths = {};
  KeyRoom room = {};
  Texts texts = {};  // the texts that positions or lengths describe, for a GPU; undefined: unknown
};

/// Computes attention for q [batch, heads, time, channels], k and v [batch, key heads, key time, channels] -> as q.
/// With fewer key heads than heads, each serves a group of neighbouring heads (Ainslie et al., arXiv:2305.13245).
/// Softmax in at least fp32.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options);

struct Heads {
  at::Tensor q, k, v;  // arguments of attention()
};

/// Splits packed [batch, time, (heads + 2 key heads) * channels] into views of queries, keys and values.
Heads unpacked(const at::Tensor& packed, int64_t heads, int64_t key_heads);

/// Computes attention() on a packed tensor -> [batch, time, heads * channels].
at::Tensor packed_attention(const at::Tensor& packed, int64_t heads, int64_t key_heads,
                            const AttentionOptions& options);

/// A change of the frequencies of rotary positions, which lets weights understand longer texts than those of their
/// first training. It is computed as transformers does.
struct RotaryScaling {
  enum class Kind { none, linear, llama3, yarn };
  Kind kind = Kind::none;
  double factor = 1;  // linear: divides all frequencies
  /// llama3: a frequency that turns at least `high_turns` times over `original_positions` stays, one that turns at most
  /// `low_turns` times is divided by the factor, and between them it goes over.
  double low_turns = 1, high_turns = 4, original_positions = 0;
  /// yarn (Peng et al., arXiv:2309.00071): the same, but it goes over evenly from channel to channel, from the one at
  /// `high_turns` to the one at `low_turns`; `whole_channels` rounds these apart. Rotated heads grow by `growth`.
  bool whole_channels = true;
  double growth = 1;
};

/// Angles of rotary positions (Su et al., arXiv:2104.09864), in the layout of Llama's files: channel i of a head is
/// paired with channel i + channels / 2 and rotates by position * theta^(-2i / channels).
struct RotaryTable {
  at::Tensor cosine, sine;  // [positions, channels / 2], at least fp32; at() says those of its own

  RotaryTable(int64_t positions, int64_t channels, double theta, const at::TensorOptions& options,
              const RotaryScaling& scaling = {});

  /// Returns the angles at positions [batch, time], int64 below the table's positions: [batch, 1, time, channels / 2],
  /// or [time, channels / 2] if there is a single row, which then serves all.
  RotaryTable at(const at::Tensor& positions) const;

 private:
  RotaryTable(at::Tensor cosines, at::Tensor sines) : cosine(std::move(cosines)), sine(std::move(sines)) {}
};

/// Rotates x [batch, heads, time, channels]. Its positions begin at 0, or are those of RotaryTable::at(); time is at
/// most the table's positions. If the table has fewer channels than x, the last channels of x stay as they are. Keeps
/// type and memory order.
at::Tensor rotate(const at::Tensor& x, const RotaryTable& table);

}  // namespace gputrain::ops

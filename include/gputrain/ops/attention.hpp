// Scaled dot-product attention and rotary positions.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace gputrain::ops {

struct AttentionOptions {
  bool causal = true;
  double dropout = 0;           // on the attention weights; on the CPU more than 0 needs memory for all of them
  std::optional<double> scale;  // default: 1 / sqrt(channels of a head)
};

/// q [batch, heads, time, channels], k and v [batch, key heads, time, channels] -> as q. With fewer key heads than
/// heads each serves a group of neighbouring heads (Ainslie et al., arXiv:2305.13245). Softmax in at least fp32.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options);

struct Heads {
  at::Tensor q, k, v;  // as attention() takes them
};

/// Views of packed [batch, time, (heads + 2 key heads) * channels]: the heads of queries, keys, values.
Heads unpacked(const at::Tensor& packed, int64_t heads, int64_t key_heads);

/// attention() of these heads -> [batch, time, heads * channels].
at::Tensor packed_attention(const at::Tensor& packed, int64_t heads, int64_t key_heads,
                            const AttentionOptions& options);

/// The angles of rotary positions (Su et al., arXiv:2104.09864), as Llama's files expect: channel i of a head is paired
/// with channel i + channels / 2, and turns by position * theta^(-2i / channels).
struct RotaryTable {
  at::Tensor cosine, sine;  // [positions, channels / 2], at least fp32

  RotaryTable(int64_t positions, int64_t channels, double theta, const at::TensorOptions& options);
};

/// x [batch, heads, time, channels], time at most the table's positions; the same type and memory order out.
at::Tensor rotate(const at::Tensor& x, const RotaryTable& table);

}  // namespace gputrain::ops

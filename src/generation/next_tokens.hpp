// The next tokens of several texts, by logits that may be on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/generation/sampling.hpp"

namespace gputrain::generation {

/// A row of logits that gives a token: the text before it, and a number that is uniform in [0, 1).
struct Draw {
  size_t row = 0;
  std::span<const int64_t> text;
  double uniform = 0;
};

/// Returns next_token() of each draw, from logits [rows, vocabulary]. It reads only as many logits of a GPU as decide.
std::vector<int64_t> next_tokens(const at::Tensor& logits, std::span<const Draw> draws, const Sampling& sampling);

/// Does the same for logits on any device, in the way of a GPU.
std::vector<int64_t> next_tokens_by_few(const at::Tensor& logits, std::span<const Draw> draws,
                                        const Sampling& sampling);

}  // namespace gputrain::generation

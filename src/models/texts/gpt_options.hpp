// What options of a GptSpec mean, for its checks and its sizes.
#pragma once

#include <cstdint>

#include "gpt.hpp"

namespace gputrain::models {

constexpr const char* kSparse = "sparse";  // a type of feed-forward layer

bool is_gated(const GptSpec& spec);

/// The layout that the job names; else Llama's where it is one in all three options, or GPT-2's.
nn::Naming naming_of(const GptSpec& spec);

/// Channels of each head that are rotated: the first ones.
int64_t rotary_channels_of(const GptSpec& spec);

}  // namespace gputrain::models

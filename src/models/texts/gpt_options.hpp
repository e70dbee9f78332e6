// Derived options of a GptSpec, for its checks and its sizes.
#pragma once

#include <cstdint>

#include "gpt.hpp"

namespace gputrain::models {

constexpr const char* kSparse = "sparse";  // type of a feed-forward layer

bool is_gated(const GptSpec& spec);

/// Returns the layout that the job names; else Llama's if rotary, norm and gate are Llama's, or GPT-2's.
nn::Naming naming_of(const GptSpec& spec);

/// Returns the number of rotated channels of each head: the first ones.
int64_t rotary_channels_of(const GptSpec& spec);

}  // namespace gputrain::models

// The tokens with which a published model ends a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "gputrain/tokenizers/published.hpp"

namespace gputrain::generation {

/// From a model's folder: `eos_token_id` of generation_config.json or, where that has none, of config.json; and the
/// `eos_token` of tokenizer_config.json, for which the tokenizer is asked if it is not null. Ascending, without
/// repetitions. Throws Error(data) for an `eos_token_id` that is not a number or a list of them.
std::vector<int64_t> end_tokens_of(const std::filesystem::path& folder,
                                   const tokenizers::PublishedTokenizer* tokenizer);

}  // namespace gputrain::generation

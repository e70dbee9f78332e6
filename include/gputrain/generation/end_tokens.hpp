// The tokens with which a published model begins and ends a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "gputrain/tokenizers/published.hpp"

namespace gputrain::generation {

/// From a model's folder: `eos_token_id` of generation_config.json or, where that has none, of config.json; and the
/// `eos_token` of tokenizer_config.json, for which the tokenizer is asked if it is not null. Ascending, without
/// repetitions. Throws Error(data) for an `eos_token_id` that is not a number or a list of them.
std::vector<int64_t> end_tokens_of(const std::filesystem::path& folder,
                                   const tokenizers::PublishedTokenizer* tokenizer);

/// The token before a text that has nothing before it: the begin token of tokenizer_config.json, or else its end token;
/// where that has neither, `bos_token_id` or `eos_token_id` of generation_config.json or config.json. None: there is no
/// such token. Throws Error(data) as end_tokens_of().
std::optional<int64_t> first_token_of(const std::filesystem::path& folder,
                                      const tokenizers::PublishedTokenizer& tokenizer);

}  // namespace gputrain::generation

// The tokens with which a language model begins and ends a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "gputrain/chat/model_templates.hpp"
#include "gputrain/tokenizers/published.hpp"

namespace gputrain::generation {

/// Returns the tokens that end a text: `eos_token_id` of the generation_config.json in a model's folder or, if that has
/// none, of its config.json; the end token of the tokenizer; and the end of an assistant's turn in the chat template.
/// Each may be missing: an empty folder, null. Ascending, without repetitions. Throws Error(data) for an `eos_token_id`
/// that is not a number or a list of them.
std::vector<int64_t> end_tokens_of(const std::filesystem::path& folder, const tokenizers::Tokenizer* tokenizer,
                                   const chat::ChatTemplate* chat_template);

/// Returns the special token that ends an answer in the chat template; none: there is no such token, or the template
/// takes no question with an answer.
std::optional<int64_t> end_of_turn(const chat::ChatTemplate& chat_template, const tokenizers::Tokenizer& tokenizer);

/// Returns the token before a text that has nothing before it: the begin token of tokenizer_config.json, or else its
/// end token; if that has neither, `bos_token_id` or `eos_token_id` of generation_config.json or config.json. None:
/// there is no such token. Throws Error(data) as end_tokens_of().
std::optional<int64_t> first_token_of(const std::filesystem::path& folder,
                                      const tokenizers::PublishedTokenizer& tokenizer);

/// Returns the numbers that a model's folder has under a key such as `eos_token_id`, in generation_config.json or, if
/// that has none, in config.json; empty: neither has the key. Throws Error(data) as end_tokens_of().
std::vector<int64_t> token_numbers(const std::filesystem::path& folder, const char* key);

}  // namespace gputrain::generation

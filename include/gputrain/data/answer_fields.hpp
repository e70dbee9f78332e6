// Fields of samples of answers to prompts, besides those of batch.hpp.
#pragma once

namespace gputrain::data {

// Prompt of the sample with the answer to another prompt, and its target.
inline constexpr const char* kUnrelatedTokens = "unrelated_tokens";
inline constexpr const char* kUnrelatedTarget = "unrelated_target";
/// [batch] float: 1 if the answer is good, 0 if it is bad. Packed: [batch, samples of a row].
inline constexpr const char* kIsGood = "is_good";

// Fields of rows that several samples share; kTokens, kTarget and kPositions hold the texts of all of them.
/// [batch, time] int64: number of the token's text in its row, counted sample by sample; -1: padding.
inline constexpr const char* kTextOfToken = "text_of_token";
/// [batch, samples of a row] int64: 0, or kIgnoreIndex where the row has fewer samples.
inline constexpr const char* kIsSample = "is_sample";

}  // namespace gputrain::data

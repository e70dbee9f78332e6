// Fields of samples of answers to prompts, besides those of batch.hpp.
#pragma once

namespace gputrain::data {

// The sample's prompt with the answer to another prompt, and what counts of it.
inline constexpr const char* kUnrelatedTokens = "unrelated_tokens";
inline constexpr const char* kUnrelatedTarget = "unrelated_target";
/// [batch] float: 1 if the answer is good, 0 if it is bad. Packed: [batch, samples of a row].
inline constexpr const char* kIsGood = "is_good";

// Where several samples share a row: kTokens, kTarget and kPositions have the texts of all of them.
/// [batch, time] int64: the texts of a row are numbered, sample by sample; -1: padding.
inline constexpr const char* kTextOfToken = "text_of_token";
/// [batch, samples of a row] int64: 0, or kIgnoreIndex where the row has fewer samples.
inline constexpr const char* kIsSample = "is_sample";

}  // namespace gputrain::data

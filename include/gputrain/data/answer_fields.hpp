// Fields of samples of answers to prompts, besides those of core/batch.hpp.
#pragma once

namespace gputrain::data {

// The sample's prompt with the answer to another prompt, and what counts of it.
inline constexpr const char* kUnrelatedTokens = "unrelated_tokens";
inline constexpr const char* kUnrelatedTarget = "unrelated_target";
/// [batch] float: 1 if the answer is good, 0 if it is bad.
inline constexpr const char* kIsGood = "is_good";

}  // namespace gputrain::data

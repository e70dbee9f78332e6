// Texts as tokens, each with a mark whether it is learned.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gputrain/tokenizers/tokenizer.hpp"
#include "learned_text.hpp"

namespace gputrain::records {

struct Example {
  std::vector<int64_t> tokens;
  std::vector<bool> learned;  // mark of each token

  /// Returns four bytes for each token; the highest bit says that it is learned.
  std::vector<uint32_t> stored() const;
};

/// Returns the tokens of the text as a whole. A token is learned if a byte of it is. Throws Error(data) if the text
/// cannot be encoded.
Example example_of(const LearnedText& text, const tokenizers::Tokenizer& tokenizer, const std::string& name);

/// Writes the tokens of Example::stored() and their targets: the next token, where that is learned, else kIgnoreIndex,
/// like the last target. Both have room for all.
void read_example(std::span<const uint32_t> stored, int64_t* tokens, int64_t* targets);
int64_t learned_count(std::span<const uint32_t> stored);  // counts the learned targets

}  // namespace gputrain::records

// SentencePiece's rules of normalisation, compiled into a trie.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traced_text.hpp"

namespace gputrain::tokenizers {

/// Immutable, so thread-safe.
class PrecompiledRules {
 public:
  /// `blob`: the size of a double-array trie in bytes, the trie, and the texts that it leads to, each with a 0 behind.
  /// Throws Error(data) if that is not what it is.
  PrecompiledRules(std::string_view blob, const std::string& where);

  /// Replaces, from left to right, the longest text that has a rule.
  void apply(TracedText& text) const;
  /// Applies the same rules as the tokenizers package does: a character as a reader sees it, of at most 5 bytes, is
  /// replaced by the rule for its shortest begin.
  void apply_to_graphemes(TracedText& text) const;

 private:
  enum class Choice { shortest, longest };
  /// Finds the rule for a begin of the text; returns the length of that begin, or 0 if there is none.
  size_t rule(std::string_view text, Choice choice, std::string_view& replacement) const;

  /// Makes the result the text, if it is UTF-8: the rules may hold any bytes. Throws Error(data) if it is not.
  void finish(Rewriter& result, TracedText& text) const;

  std::string where_;
  std::vector<uint32_t> trie_;
  std::string texts_;
};

}  // namespace gputrain::tokenizers

// Tokens that are cut out of a text before anything else sees it, such as "<|im_end|>".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../function_ref.hpp"
#include "subwords/pair_table.hpp"

namespace gputrain::tokenizers {

struct AddedToken {
  std::string text;        // spelt as in the file
  std::string shown = {};  // text to decode to and to look for; empty: `text`, normalised if it is_normalized
  int32_t token = -1;
  bool is_single_word = false;  // not if a letter, a digit or a mark is beside it
  bool takes_space_before = false;
  bool takes_space_behind = false;
  bool is_normalized = false;  // looked for after normalisation
  bool is_special = false;     // control, not text
  bool is_found = true;        // in texts; else only named
};

/// Finds tokens in texts: the leftmost, of these the longest. Immutable, so thread-safe.
class AddedTokens {
 public:
  /// Looks for `shown` of each token.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  using TakeText = FunctionRef<void(std::string_view text, size_t begin)>;
  using TakeToken = FunctionRef<void(int32_t token, size_t begin, size_t end)>;
  /// Passes on the stretches between tokens, and the tokens, in order, with their places. The spaces that a token takes
  /// are in neither.
  void cut(std::string_view text, TakeText take_text, TakeToken take_token) const;

 private:
  /// Finds the longest pattern that begins at `at`: its token's index and its end. -1 if none does.
  int32_t match(std::string_view text, size_t at, size_t& end) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_{};    // whether a pattern begins with this byte
  PairTable children_;                // (node, byte) -> node
  std::vector<int32_t> node_tokens_;  // index of the token that ends at a node, or -1
};

}  // namespace gputrain::tokenizers

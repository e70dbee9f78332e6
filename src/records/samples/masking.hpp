// Choice of the tokens of a text that a mask hides.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gputrain/data/options.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::records {

/// Choice of the tokens to be guessed (Devlin et al., arXiv:1810.04805, section 3.1).
class Masking {
 public:
  /// Throws Error(usage) if the tokenizer has no mask.
  Masking(const data::MaskingOptions& options, const tokenizers::Tokenizer& tokenizer);

  /// Replaces chosen tokens, and sets `targets` to their old values; to kIgnoreIndex at the others. A pure function of
  /// tokens, seed and stream. Special tokens are never chosen.
  void hide(std::span<int64_t> tokens, std::span<int64_t> targets, uint64_t seed, uint64_t stream) const;

 private:
  data::MaskingOptions options_;
  int64_t mask_, vocabulary_;
  std::vector<bool> is_special_, continues_word_;  // marks by token
};

}  // namespace gputrain::records

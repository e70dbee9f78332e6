// Texts of which a mask hides some tokens, for models that guess them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "encoded_texts.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/options.hpp"

namespace gputrain::records {

/// Chooses the tokens to be guessed (Devlin et al., arXiv:1810.04805, section 3.1).
class Masking {
 public:
  /// Throws Error(usage) if the tokenizer has no mask.
  Masking(const data::MaskingOptions& options, const tokenizers::Tokenizer& tokenizer);

  /// Replaces chosen tokens, and sets `targets` to what they were; to kIgnoreIndex at the others. A pure function of
  /// tokens, seed and stream. Special tokens are never chosen.
  void hide(std::span<int64_t> tokens, std::span<int64_t> targets, uint64_t seed, uint64_t stream) const;

 private:
  data::MaskingOptions options_;
  int64_t mask_, vocabulary_;
  std::vector<bool> is_special_, continues_word_;  // by token
};

/// Fields tokens and target, ragged. A text that is longer than a sample becomes several.
class MaskedTexts final : public data::Dataset {
 public:
  struct Text {
    std::string text, place;
    std::string problem = {};  // empty: it can be used
  };
  MaskedTexts(const data::DatasetRequest& request, std::vector<Text> texts, std::string files,
              const MaskedTexts* train);

  int64_t size() const override { return texts_.size(); }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override;
  int64_t length(int64_t index) const override;
  bool is_cheap_to_read() const override { return true; }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return tokenizer_; }
  uint64_t content_hash() const override { return content_hash_; }
  std::string describe() const override;

 private:
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  std::unique_ptr<const Masking> masking_;
  TextStore texts_;
  std::string files_;
  uint64_t content_hash_ = 0;
  data::SampleLayout layout_;
};

}  // namespace gputrain::records

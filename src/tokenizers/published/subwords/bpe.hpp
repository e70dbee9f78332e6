// Byte-pair encoding: joins the pair of neighbours that was learned first, until there is none.
// Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", 2016.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "model.hpp"

namespace gputrain::tokenizers {

struct BpeOptions {
  std::string unknown = {};          // its text; empty: none
  std::string inner_prefix = {};     // before each character but a word's first
  std::string word_suffix = {};      // behind its last
  bool fuses_unknown = false;        // one token for several unknown characters
  bool falls_back_to_bytes = false;  // tokens "<0x00>" to "<0xFF>" for unknown characters
  bool prefers_whole_words = false;  // a word that is a token needs no pairs
  bool is_byte_level = false;        // texts of tokens are in GPT-2's alphabet, words are bytes
};

class Bpe final : public Model {
 public:
  /// Throws Error(data) if the unknown token, or with `is_byte_level` the token of a byte, is not in the vocabulary.
  Bpe(Vocabulary vocabulary, PairTable pairs, BpeOptions options);

  bool encode(std::string_view word, Workspace& workspace) const override;
  bool takes_bytes() const override { return options_.is_byte_level; }
  bool can_cut_before_spaces() const override { return can_cut_before_spaces_; }

 private:
  bool append_bytes(std::string_view word, Workspace& workspace) const;
  bool append_characters(std::string_view word, Workspace& workspace) const;
  void join_few(size_t begin, Workspace& workspace) const;
  void join_many(size_t begin, Workspace& workspace) const;
  int32_t whole_word(std::string_view word) const;

  PairTable pairs_;
  BpeOptions options_;
  int32_t unknown_ = -1;
  std::array<int32_t, 256> byte_tokens_;        // with is_byte_level
  std::vector<int32_t> ascii_tokens_;           // without, and without prefix and suffix: of characters below 128
  std::unique_ptr<Vocabulary> words_as_bytes_;  // with is_byte_level and prefers_whole_words
  bool can_cut_before_spaces_ = false;
};

}  // namespace gputrain::tokenizers

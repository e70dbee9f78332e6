// Turns a word into tokens; what a word is, a pre-tokenizer says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "vocabulary.hpp"
#include "workspace.hpp"

namespace gputrain::tokenizers {

/// A model of tokens for words. Immutable, so thread-safe.
class Model {
 public:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~Model() = default;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Appends the tokens of a word of well-formed UTF-8, not empty, to the workspace. False if a part of the word has no
  /// token.
  virtual bool encode(std::string_view word, Workspace& workspace) const = 0;
  /// Returns whether it takes bytes themselves, not the characters that stand for bytes in GPT-2's alphabet.
  virtual bool takes_bytes() const { return false; }
  /// Returns whether no token spans the begin of such a word: text may be cut before each "▁" that follows another
  /// character.
  virtual bool can_cut_before_spaces() const { return false; }

 private:
  Vocabulary vocabulary_;
};

inline constexpr std::string_view kSpaceMark = "\u2581";  // "▁", which stands for a space

/// Appends the numbers of "<0x00>" to "<0xFF>" for the bytes of a text, which begins at `begin` of the word, or nothing
/// if one is missing.
bool append_byte_tokens(const Vocabulary& vocabulary, std::string_view text, size_t begin, Workspace& workspace);

/// Reads "model" of a tokenizer.json. `is_byte_level`: its words are texts in GPT-2's alphabet.
std::unique_ptr<const Model> read_model(const JsonPart& part, bool is_byte_level);
std::unique_ptr<const Model> read_word_level(const JsonPart& part);
std::unique_ptr<const Model> read_word_piece(const JsonPart& part);
std::unique_ptr<const Model> read_unigram(const JsonPart& part);

}  // namespace gputrain::tokenizers

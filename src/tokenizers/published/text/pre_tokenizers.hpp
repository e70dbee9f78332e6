// Pre-tokenizers: they cut a text into the words that a model turns into tokens.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "../../function_ref.hpp"
#include "../files/json_part.hpp"
#include "traced_text.hpp"

namespace gputrain::tokenizers {

struct Workspace;

/// A part of a text, never empty.
struct Piece {
  Piece(std::string_view words, bool begins, const ByteRange* from) : text(words), is_first(begins), origins(from) {}
  Piece(const TracedText& words, bool begins) : Piece(words.text, begins, words.trace()) {}

  Piece part(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), is_first && begin == 0, origins == nullptr ? nullptr : origins + begin};
  }

  std::string_view text;
  bool is_first;             // the text begins with it
  const ByteRange* origins;  // origin of each byte and of the end; null: nobody asks
};

using TakePiece = FunctionRef<void(Piece)>;
/// Passes on the pieces of a piece, in order; they live during the call. Thread-safe.
using PreTokenizer = std::function<void(Piece, Workspace&, TakePiece)>;

struct PreTokenizers {
  std::vector<PreTokenizer> steps;  // each cuts the pieces of the one before
  /// The last step writes bytes in GPT-2's alphabet. It is not among the steps, for a model may take bytes themselves.
  bool ends_with_alphabet = false;

  void cut(Piece piece, Workspace& workspace, TakePiece take) const { cut_from(0, piece, workspace, take); }

 private:
  void cut_from(size_t step, Piece piece, Workspace& workspace, TakePiece take) const;
};

/// Reads "pre_tokenizer" of a tokenizer.json.
PreTokenizers read_pre_tokenizer(const JsonPart& part);

TracedText with_prefix(std::string_view prefix, std::string_view text, const ByteRange* origins);
TracedText with_spaces_as(std::string_view mark, std::string_view text, const ByteRange* origins);
/// Writes each byte as its character of GPT-2's alphabet.
TracedText in_alphabet(std::string_view text, const ByteRange* origins);
void write_in_alphabet(Piece piece, Workspace& workspace, TakePiece take);
/// Cuts before each "▁" that follows another character.
void cut_before_spaces(Piece piece, Workspace& workspace, TakePiece take);

}  // namespace gputrain::tokenizers

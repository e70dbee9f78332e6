// Pre-tokenizers: they cut a text into the words that a model turns into tokens.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "../function_ref.hpp"
#include "json_part.hpp"

namespace gputrain::tokenizers {

struct Workspace;

/// A part of a text, never empty.
struct Piece {
  std::string_view text;
  bool is_first;  // the text begins with it
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

/// "pre_tokenizer" of a tokenizer.json.
PreTokenizers read_pre_tokenizer(const JsonPart& part);

/// Writes each byte as its character of GPT-2's alphabet.
void write_in_alphabet(Piece piece, Workspace& workspace, TakePiece take);
/// Cuts before each "▁" that follows another character.
void cut_before_spaces(Piece piece, Workspace& workspace, TakePiece take);

}  // namespace gputrain::tokenizers

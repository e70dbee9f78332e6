// Texts of a file as inputs of a trained encoder, without targets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/data/batch.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::records {

struct GivenText {
  std::string text;
  std::optional<std::string> pair = {};  // a second text, for a model that reads two
  std::vector<std::string> words = {};   // instead of `text`, for a model that tags them
  std::string place;                     // "reviews.csv:12"
};

struct GivenTextFile {
  std::string path;  // path, whose extension gives the format: csv, tsv, jsonl, parquet, conll, else a text per line
  Target target = Target::label;
  data::ColumnNames columns = {};             // columns of the training data
  std::vector<std::string> class_names = {};  // classes of the model, so that a table's row of names is known
};

/// Returns the texts of a file, plain or .gz, in its order. A text line is split at blanks where words are wanted.
/// Throws Error(data) for the first record that cannot be read or has no text, and if there is none.
std::vector<GivenText> read_given_texts(const GivenTextFile& file);

/// Text as an encoder reads it.
struct EncoderInput {
  std::vector<int32_t> tokens;       // within the tokenizer's frame, cut to `most`
  int64_t second_type = 0;           // begin of the tokens of the second type; tokens.size(): there are none
  std::vector<int64_t> word_places;  // place of each word's first token; -1: it has none; cut words are missing
  int64_t full_size = 0;             // number of tokens before the cut
};

/// Returns one for each text. Throws Error(data) for the first text that cannot be encoded or has no token.
std::vector<EncoderInput> encoder_inputs(const std::vector<GivenText>& texts, const tokenizers::Tokenizer& tokenizer,
                                         int64_t most);

}  // namespace gputrain::records

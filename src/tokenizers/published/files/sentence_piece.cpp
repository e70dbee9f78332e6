// Reads the models of SentencePiece (Kudo, Richardson, 2018). Its library is not used: it brings a second copy of
// protocol buffers into the process, and what it does with a model is what our own Bpe and Unigram do.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>

#include "../subwords/read_bpe.hpp"
#include "../subwords/unigram.hpp"
#include "../subwords/workspace.hpp"
#include "../text/pre_tokenizers.hpp"
#include "../text/precompiled.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/protobuf.hpp"
#include "readers.hpp"

namespace gputrain::tokenizers {
namespace {

using protobuf::Field;
using protobuf::read_fields;

enum class PieceType : uint64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct SentencePiece {
  std::string_view text;
  float score = 0;
  PieceType type = PieceType::normal;
};

struct SentencePieceModel {
  std::vector<SentencePiece> pieces;
  enum class Kind : uint64_t { unigram = 1, bpe = 2 };
  Kind kind = Kind::unigram;
  bool falls_back_to_bytes = false;
  std::string_view rules;  // rules of normalisation
  bool prepends_space = true;
  bool removes_extra_spaces = true;
  bool marks_spaces = true;
};

bool read_message(std::string_view message, SentencePieceModel& model) {
  bool is_whole = true;
  const auto piece = [&](std::string_view part) {
    SentencePiece& read = model.pieces.emplace_back();
    is_whole &= read_fields(part, [&](const Field& field) {
      if (field.number == 1) read.text = field.bytes;
      if (field.number == 2) read.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
      if (field.number == 3) read.type = static_cast<PieceType>(field.value);
    });
  };
  const auto trainer = [&](const Field& field) {
    if (field.number == 3) model.kind = static_cast<SentencePieceModel::Kind>(field.value);
    if (field.number == 35) model.falls_back_to_bytes = field.value != 0;
  };
  const auto normalizer = [&](const Field& field) {
    if (field.number == 2) model.rules = field.bytes;
    if (field.number == 3) model.prepends_space = field.value != 0;
    if (field.number == 4) model.removes_extra_spaces = field.value != 0;
    if (field.number == 5) model.marks_spaces = field.value != 0;
  };
  is_whole &= read_fields(message, [&](const Field& field) {
    if (field.number == 1) piece(field.bytes);
    if (field.number == 2) is_whole &= read_fields(field.bytes, trainer);
    if (field.number == 3) is_whole &= read_fields(field.bytes, normalizer);
  });
  return is_whole && !model.pieces.empty();
}

void remove_extra_spaces(TracedText& traced) {
  const std::string_view text = traced.text;
  Rewriter result(traced);
  for (size_t begin = text.find_first_not_of(' '); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find(' ', begin), text.size()), next = text.find_first_not_of(' ', end);
    result.keep(begin, next == std::string_view::npos ? end : end + 1);  // with one space between two words
    begin = next;
  }
  traced = result.finish();
}

/// Takes marks of spaces off the end.
void strip_marks(TracedText& traced) {
  std::string_view text = traced.text;
  while (text.ends_with(kSpaceMark)) text.remove_suffix(kSpaceMark.size());
  Rewriter result(traced);
  result.keep(0, text.size());
  traced = result.finish();
}

Normalizer normalizer_of(const SentencePieceModel& model, const std::string& file) {
  const auto rules = model.rules.empty() ? nullptr : std::make_shared<PrecompiledRules>(model.rules, file);
  return [rules, prepends = model.prepends_space, removes = model.removes_extra_spaces](TracedText& text, Workspace&) {
    const bool was_empty = text.text.empty();
    if (rules) rules->apply(text);
    if (removes) remove_extra_spaces(text);
    if (prepends && !was_empty) text = with_prefix(" ", text.text, text.trace());
    text = with_spaces_as(kSpaceMark, text.text, text.trace());
    if (removes) strip_marks(text);
  };
}

std::unique_ptr<const Model> bpe_of(const SentencePieceModel& model, Vocabulary vocabulary, int64_t unknown) {
  std::map<float, uint32_t, std::greater<>> ranks;  // rank of each score, the highest first
  for (const SentencePiece& piece : model.pieces) ranks[piece.score] = 0;
  uint32_t next = 0;
  for (auto& [score, rank] : ranks) rank = next++;
  std::vector<uint32_t> by_token;
  for (const SentencePiece& piece : model.pieces)
    by_token.push_back(piece.type == PieceType::normal ? ranks[piece.score] : PairTable::kNone);
  BpeOptions options{.unknown = unknown < 0 ? "" : *vocabulary.text(unknown),
                     .fuses_unknown = true,
                     .falls_back_to_bytes = model.falls_back_to_bytes};
  PairTable pairs = pairs_of(vocabulary, by_token);
  return std::make_unique<Bpe>(std::move(vocabulary), std::move(pairs), std::move(options));
}

/// Returns a score so good that a user-defined piece is taken, unless pieces that overlap its ends save more.
float user_defined_score(std::string_view piece) {
  return static_cast<float>(0.1 * (static_cast<double>(piece.size()) - 1));
}

std::unique_ptr<const Model> unigram_of(const SentencePieceModel& model, Vocabulary vocabulary, int64_t unknown) {
  std::vector<double> scores;
  std::vector<bool> is_found;
  for (const SentencePiece& piece : model.pieces) {
    const bool is_user_defined = piece.type == PieceType::user_defined;
    scores.push_back(is_user_defined ? user_defined_score(piece.text) : piece.score);
    is_found.push_back(is_user_defined || piece.type == PieceType::normal);
  }
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), is_found,
                                   Unigram::Options{.unknown = static_cast<int32_t>(unknown),
                                                    .falls_back_to_bytes = model.falls_back_to_bytes,
                                                    .is_single_precision = true});
}

Decoder decoder_of(size_t dropped_spaces) {
  return [dropped_spaces](std::vector<std::string>& texts) {
    metaspace_decoder(std::string(kSpaceMark), false)(texts);
    byte_fallback_decoder()(texts);
    std::string all;
    for (const std::string& text : texts) all += text;
    all.erase(0, std::min({dropped_spaces, all.find_first_not_of(' '), all.size()}));
    texts.assign(1, std::move(all));
  };
}

}  // namespace

SentencePieces read_sentence_pieces(std::string_view message, const std::string& file) {
  SentencePieceModel model;
  if (!read_message(message, model))
    throw Error(ExitCode::data, {.what = "not a SentencePiece model, or cut off", .where = file});
  SentencePieces pieces{.are_of_bpe = model.kind == SentencePieceModel::Kind::bpe,
                        .prepends_space = model.prepends_space};
  for (const SentencePiece& piece : model.pieces) {
    pieces.texts.emplace_back(piece.text);
    pieces.scores.push_back(piece.score);
    pieces.kinds.push_back(static_cast<int32_t>(piece.type));
  }
  return pieces;
}

PublishedTokenizer::Parts read_sentence_piece(std::string_view message, const std::string& file) {
  const auto refuse = [&](const std::string& what) { throw Error(ExitCode::data, {.what = what, .where = file}); };
  SentencePieceModel model;
  if (!read_message(message, model)) refuse("not a SentencePiece model, or cut off");
  const bool is_bpe = model.kind == SentencePieceModel::Kind::bpe;
  if (!is_bpe && model.kind != SentencePieceModel::Kind::unigram) refuse("the model is neither BPE nor Unigram");
  if (!model.marks_spaces) refuse("'escape_whitespaces: false' is not supported");
  Vocabulary vocabulary(file);
  PublishedTokenizer::Parts parts;
  int64_t unknown = -1;
  for (const SentencePiece& piece : model.pieces) {
    const int64_t token = vocabulary.size();
    vocabulary.add(piece.text, token);
    if (!std::isfinite(piece.score)) refuse("the score of piece " + std::to_string(token) + " is not finite");
    if (piece.type == PieceType::unknown) unknown = token;
    if (piece.type == PieceType::unused && is_bpe) refuse("a BPE model with unused pieces is not supported");
    const bool is_control = piece.type == PieceType::control || piece.type == PieceType::unknown;
    if (!is_control && piece.type != PieceType::user_defined) continue;
    parts.added.push_back({.text = std::string(piece.text),
                           .shown = std::string(piece.text),
                           .token = static_cast<int32_t>(token),
                           .is_normalized = true,
                           .is_special = is_control,
                           .is_found = !is_control && is_bpe});  // Unigram weighs them like other pieces
  }
  parts.normalizer = normalizer_of(model, file);
  parts.decoder = decoder_of(model.removes_extra_spaces ? std::string::npos : model.prepends_space ? 1 : 0);
  parts.model =
      is_bpe ? bpe_of(model, std::move(vocabulary), unknown) : unigram_of(model, std::move(vocabulary), unknown);
  return parts;
}

}  // namespace gputrain::tokenizers

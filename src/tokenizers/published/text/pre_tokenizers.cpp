#include "pre_tokenizers.hpp"

#include <memory>

#include "../subwords/model.hpp"
#include "../subwords/workspace.hpp"
#include "pattern.hpp"
#include "splitting.hpp"
#include "unicode.hpp"

namespace gputrain::tokenizers {
namespace {

using enum DelimiterBehavior;

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

PreTokenizer split_by(std::string_view pattern, DelimiterBehavior behavior, bool is_inverted = false) {
  return split(matches_of(std::make_shared<Regex>(pattern, RegexDialect::rust, "a pattern of ours")), behavior,
               is_inverted);
}

DelimiterBehavior behavior_of(const JsonPart& part, const char* fallback) {
  const std::string name = part.text("behavior", fallback);
  const auto behavior = delimiter_behavior(name);
  if (!behavior) part.refuse("the behavior '" + name + "' is not supported");
  return *behavior;
}

PreTokenizer prefix(std::string_view text) {
  return [text = std::string(text)](Piece piece, Workspace&, TakePiece take) {
    if (piece.text.starts_with(text)) return take(piece);
    const TracedText longer = with_prefix(text, piece.text, piece.origins);
    take({longer, piece.is_first});
  };
}

void add_byte_level(const JsonPart& part, PreTokenizers& pre_tokenizers) {
  if (part.flag("add_prefix_space", true)) pre_tokenizers.steps.push_back(prefix(" "));
  if (part.flag("use_regex", true)) pre_tokenizers.steps.push_back(split_by(kGpt2Pattern, isolated));
  pre_tokenizers.ends_with_alphabet = true;
}

void add_metaspace(const JsonPart& part, PreTokenizers& pre_tokenizers) {
  const std::string mark = part.text("replacement", std::string(kSpaceMark));
  const std::string scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    part.refuse("the prepend_scheme '" + scheme + "' is not supported");
  pre_tokenizers.steps.push_back([mark, scheme](Piece piece, Workspace&, TakePiece take) {
    TracedText text = with_spaces_as(mark, piece.text, piece.origins);
    if ((scheme == "always" || (scheme == "first" && piece.is_first)) && !text.text.starts_with(mark))
      text = with_prefix(mark, text.text, text.trace());
    take({text, piece.is_first});
  });
  if (part.flag("split", true)) pre_tokenizers.steps.push_back(split_by(escaped(mark), merged_with_next));
}

void add(const JsonPart& part, PreTokenizers& pre_tokenizers) {
  if (pre_tokenizers.ends_with_alphabet) {  // more steps see the alphabet
    pre_tokenizers.steps.push_back(write_in_alphabet);
    pre_tokenizers.ends_with_alphabet = false;
  }
  std::vector<PreTokenizer>& steps = pre_tokenizers.steps;
  const std::string type = part.type();
  if (type == "Sequence") {
    for (const JsonPart& step : part.at("pretokenizers").list()) add(step, pre_tokenizers);
  } else if (type == "ByteLevel") {
    add_byte_level(part, pre_tokenizers);
  } else if (type == "Split") {
    steps.push_back(split(matches_of(std::make_shared<Regex>(read_pattern(part.at("pattern")))),
                          behavior_of(part, "Isolated"), part.flag("invert", false)));
  } else if (type == "Metaspace") {
    add_metaspace(part, pre_tokenizers);
  } else if (type == "Whitespace") {
    steps.push_back(split_by(R"(\w+|[^\w\s]+)", removed, true));
  } else if (type == "WhitespaceSplit") {
    steps.push_back(split(characters_that(is_white_space), removed));
  } else if (type == "Digits") {
    steps.push_back(split(characters_that(is_number), part.flag("individual_digits", false) ? isolated : contiguous));
  } else if (type == "Punctuation") {
    steps.push_back(split(characters_that(is_punctuation), behavior_of(part, "Isolated")));
  } else if (type == "CharDelimiterSplit") {
    steps.push_back(split_by(escaped(part.at("delimiter").text()), removed));
  } else if (type == "BertPreTokenizer") {
    steps.push_back(split(characters_that(is_white_space), removed));
    steps.push_back(split(characters_that(is_punctuation), isolated));
  } else {
    part.refuse("the pre_tokenizer '" + type + "' is not supported");
  }
}

}  // namespace

void PreTokenizers::cut_from(size_t step, Piece piece, Workspace& workspace, TakePiece take) const {
  if (step == steps.size()) return take(piece);
  if (step + 1 == steps.size()) return steps[step](piece, workspace, take);
  steps[step](piece, workspace, [&](Piece part) { cut_from(step + 1, part, workspace, take); });
}

PreTokenizers read_pre_tokenizer(const JsonPart& part) {
  PreTokenizers pre_tokenizers;
  add(part, pre_tokenizers);
  return pre_tokenizers;
}

TracedText with_prefix(std::string_view prefix, std::string_view text, const ByteRange* origins) {
  Rewriter result(text, origins);
  result.put(prefix, 0, 0);
  result.keep(0, text.size());
  return result.finish();
}

TracedText with_spaces_as(std::string_view mark, std::string_view text, const ByteRange* origins) {
  Rewriter result(text, origins);
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    result.keep(at, space);
    if (space < text.size()) result.put(mark, space, space + 1);
    at = space + 1;
  }
  return result.finish();
}

TracedText in_alphabet(std::string_view text, const ByteRange* origins) {
  Rewriter result(text, origins);
  for (size_t i = 0; i < text.size(); ++i) result.put(byte_character(static_cast<unsigned char>(text[i])), i, i + 1);
  return result.finish();
}

void write_in_alphabet(Piece piece, Workspace&, TakePiece take) {
  const TracedText text = in_alphabet(piece.text, piece.origins);
  take({text, piece.is_first});
}

void cut_before_spaces(Piece piece, Workspace&, TakePiece take) {
  size_t begin = 0;
  for (size_t mark = 0; (mark = piece.text.find(kSpaceMark, mark)) != std::string_view::npos;
       mark += kSpaceMark.size()) {
    if (mark == begin || piece.text.substr(0, mark).ends_with(kSpaceMark)) continue;
    take(piece.part(begin, mark));
    begin = mark;
  }
  take(piece.part(begin, piece.text.size()));
}

}  // namespace gputrain::tokenizers

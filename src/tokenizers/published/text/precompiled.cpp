#include "precompiled.hpp"

#include <cstring>

#include "gputrain/core/error.hpp"
#include "unicode.hpp"

namespace gputrain::tokenizers {
namespace {

// A unit of the trie, as the library darts-clone lays it out.
constexpr bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
constexpr uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFF; }
constexpr uint32_t label(uint32_t unit) { return unit & 0x800000FF; }
constexpr uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

}  // namespace

PrecompiledRules::PrecompiledRules(std::string_view blob, const std::string& where) : where_(where) {
  uint32_t bytes = 0;
  if (blob.size() >= sizeof(bytes)) std::memcpy(&bytes, blob.data(), sizeof(bytes));
  if (bytes == 0 || bytes % 4 != 0 || bytes > blob.size() - sizeof(bytes))
    throw Error(ExitCode::data, {.what = "the compiled rules of normalisation are broken", .where = where});
  trie_.resize(bytes / 4);
  std::memcpy(trie_.data(), blob.data() + sizeof(bytes), bytes);
  texts_ = blob.substr(sizeof(bytes) + bytes);
}

size_t PrecompiledRules::rule(std::string_view text, Choice choice, std::string_view& replacement) const {
  size_t length = 0, node = offset(trie_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= trie_.size() || label(trie_[node]) != byte) break;
    const uint32_t unit = trie_[node];
    node ^= offset(unit);
    if (!has_leaf(unit) || node >= trie_.size() || value(trie_[node]) >= texts_.size()) continue;
    length = i + 1;
    replacement = texts_.c_str() + value(trie_[node]);
    if (choice == Choice::shortest) break;
  }
  return length;
}

void PrecompiledRules::finish(Rewriter& result, TracedText& text) const {
  text = result.finish();
  if (!is_utf8(text.text))
    throw Error(ExitCode::data, {.what = "the tokenizer's rules of normalisation make text that is not UTF-8",
                                 .where = where_,
                                 .hint = "take the tokenizer from its publisher again"});
}

void PrecompiledRules::apply(TracedText& traced) const {
  const std::string_view text = traced.text;
  Rewriter result(traced);
  for (size_t at = 0; at < text.size();) {
    std::string_view replacement;
    const size_t bytes = rule(text.substr(at), Choice::longest, replacement);
    const size_t end = at + (bytes == 0 ? code_point_bytes(text[at]) : bytes);
    if (bytes == 0) {
      result.keep(at, end);
    } else {
      result.put(replacement, at, end);
    }
    at = end;
  }
  finish(result, traced);
}

void PrecompiledRules::apply_to_graphemes(TracedText& traced) const {
  const std::string_view text = traced.text;
  Rewriter result(traced);
  std::string_view replacement;
  for (size_t at = 0; at < text.size();) {
    const size_t grapheme = grapheme_end(text, at);
    if (grapheme - at < 6 && rule(text.substr(at, grapheme - at), Choice::shortest, replacement) > 0) {
      result.put(replacement, at, grapheme);
      at = grapheme;
      continue;
    }
    while (at < grapheme) {
      const size_t end = at + code_point_bytes(text[at]);
      if (rule(text.substr(at, end - at), Choice::shortest, replacement) > 0) {
        result.put(replacement, at, end);
      } else {
        result.keep(at, end);
      }
      at = end;
    }
  }
  finish(result, traced);
}

}  // namespace gputrain::tokenizers

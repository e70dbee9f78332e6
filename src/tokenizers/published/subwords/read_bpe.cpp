#include "read_bpe.hpp"

#include "../text/unicode.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::tokenizers {
namespace {

/// Reads "a b" or ["a", "b"].
Merge read_merge(const nlohmann::json& value, const JsonPart& merges, size_t index) {
  const std::string place = merges.file() + ": model.merges[" + std::to_string(index) + "]";
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get<std::string>(), value[1].get<std::string>(), place};
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1), place};
  }
  throw Error(ExitCode::data, {.what = "expected two tokens, as \"a b\" or [\"a\", \"b\"]", .where = place});
}

int32_t required(const Vocabulary& vocabulary, const std::string& text, const Merge& merge) {
  const int32_t token = vocabulary.find(text);
  if (token < 0)
    throw Error(ExitCode::data, {.what = "the merge of '" + shortened(merge.left) + "' and '" + shortened(merge.right) +
                                         "' needs the token '" + shortened(text) + "', which the vocabulary lacks",
                                 .where = merge.where});
  return token;
}

}  // namespace

PairTable pairs_of(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const std::string& inner_prefix) {
  PairTable pairs(merges.size());
  uint32_t rank = 0;
  for (const Merge& merge : merges) {
    if (!merge.right.starts_with(inner_prefix))
      throw Error(ExitCode::data,
                  {.what = "'" + shortened(merge.right) + "' is merged into a word, but does not begin with '" +
                           shortened(inner_prefix) + "'",
                   .where = merge.where});
    const int32_t left = required(vocabulary, merge.left, merge), right = required(vocabulary, merge.right, merge);
    const int32_t joined = required(vocabulary, merge.left + merge.right.substr(inner_prefix.size()), merge);
    if (!pairs.insert(left, right, {rank++, joined}))
      throw Error(ExitCode::data,
                  {.what = "'" + shortened(merge.left) + "' and '" + shortened(merge.right) + "' are merged twice",
                   .where = merge.where});
  }
  return pairs;
}

PairTable pairs_of(const Vocabulary& vocabulary, std::span<const uint32_t> ranks) {
  struct Pair {
    int32_t left, right;
    PairTable::Value value;
  };
  std::vector<Pair> found;
  for (int64_t token = 0; token < vocabulary.size(); ++token) {
    const std::string* text = vocabulary.text(token);
    const uint32_t rank = text == nullptr ? PairTable::kNone : ranks[static_cast<size_t>(token)];
    if (rank == PairTable::kNone) continue;
    for (size_t cut = 1; cut < text->size(); ++cut) {
      if ((static_cast<unsigned char>((*text)[cut]) & 0xC0) == 0x80) continue;  // within a character
      const int32_t left = vocabulary.find(std::string_view(*text).substr(0, cut));
      const int32_t right = left < 0 ? -1 : vocabulary.find(std::string_view(*text).substr(cut));
      if (right >= 0) found.push_back({left, right, {rank, static_cast<int32_t>(token)}});
    }
  }
  PairTable pairs(found.size());
  for (const Pair& pair : found) pairs.insert(pair.left, pair.right, pair.value);
  return pairs;
}

std::unique_ptr<const Model> read_bpe(const JsonPart& part, bool is_byte_level) {
  if (part.has("dropout") && part.at("dropout").number() != 0)
    part.at("dropout").refuse("dropout of merges is not supported", "set it to null");
  BpeOptions options{.unknown = part.text("unk_token", ""),
                     .inner_prefix = part.text("continuing_subword_prefix", ""),
                     .word_suffix = part.text("end_of_word_suffix", ""),
                     .fuses_unknown = part.flag("fuse_unk", false),
                     .falls_back_to_bytes = part.flag("byte_fallback", false),
                     .prefers_whole_words = part.flag("ignore_merges", false)};
  options.is_byte_level =
      is_byte_level && options.inner_prefix.empty() && options.word_suffix.empty() && !options.falls_back_to_bytes;
  Vocabulary vocabulary = read_vocabulary(part.at("vocab"));
  const JsonPart list = part.at("merges");
  if (!list.value().is_array()) list.refuse("expected a list");
  std::vector<Merge> merges;
  merges.reserve(list.value().size());
  for (const nlohmann::json& value : list.value()) merges.push_back(read_merge(value, list, merges.size()));
  PairTable pairs = pairs_of(vocabulary, merges, options.inner_prefix);
  return std::make_unique<Bpe>(std::move(vocabulary), std::move(pairs), std::move(options));
}

}  // namespace gputrain::tokenizers

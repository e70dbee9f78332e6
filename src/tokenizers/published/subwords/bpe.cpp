#include "bpe.hpp"

#include <algorithm>
#include <optional>
#include <queue>

#include "../../utf8.hpp"
#include "../text/unicode.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::tokenizers {
namespace {

/// Returns the bytes for which a text in GPT-2's alphabet stands, or nothing if it has other characters.
std::optional<std::string> bytes_of(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const int byte = character_byte(next_code_point(text, at));
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

/// Returns whether "▁" stands in a token only at its begin, or behind another "▁" there.
bool spaces_only_lead(const Vocabulary& vocabulary) {
  for (int64_t token = 0; token < vocabulary.size(); ++token) {
    const std::string* text = vocabulary.text(token);
    if (text == nullptr) continue;
    size_t at = 0;
    while (std::string_view(*text).substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
    if (text->find(kSpaceMark, at) != std::string::npos) return false;
  }
  return vocabulary.find(kSpaceMark) >= 0;
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, PairTable pairs, BpeOptions options)
    : Model(std::move(vocabulary)), pairs_(std::move(pairs)), options_(std::move(options)) {
  if (!options_.unknown.empty()) {
    unknown_ = this->vocabulary().find(options_.unknown);
    if (unknown_ < 0)
      throw Error(ExitCode::data,
                  {.what = "the unknown token '" + shortened(options_.unknown) + "' is not in the vocabulary",
                   .where = this->vocabulary().where()});
  }
  const bool is_plain = options_.inner_prefix.empty() && options_.word_suffix.empty();
  can_cut_before_spaces_ =
      is_plain && !options_.is_byte_level && !options_.prefers_whole_words && spaces_only_lead(this->vocabulary());
  std::string text;
  for (int64_t byte = 0; byte < 256 && options_.is_byte_level; ++byte) {
    text.clear();
    append_utf8(byte_character(static_cast<unsigned char>(byte)), text);
    byte_tokens_[static_cast<size_t>(byte)] = this->vocabulary().find(text);
  }
  for (int character = 0; character < 128 && is_plain; ++character)
    ascii_tokens_.push_back(this->vocabulary().find(std::string(1, static_cast<char>(character))));
  if (!options_.is_byte_level || !options_.prefers_whole_words) return;
  words_as_bytes_ = std::make_unique<Vocabulary>(this->vocabulary().where());
  for (int64_t token = 0; token < this->vocabulary().size(); ++token) {
    const std::string* name = this->vocabulary().text(token);
    const auto bytes = name == nullptr ? std::nullopt : bytes_of(*name);
    if (bytes) words_as_bytes_->add(*bytes, token);
  }
}

int32_t Bpe::whole_word(std::string_view word) const {
  return (words_as_bytes_ ? *words_as_bytes_ : vocabulary()).find(word);
}

bool Bpe::encode(std::string_view word, Workspace& workspace) const {
  if (options_.prefers_whole_words) {
    const int32_t token = whole_word(word);
    if (token >= 0) {
      workspace.push(token, 0, word.size());
      return true;
    }
  }
  const size_t begin = workspace.tokens.size();
  if (!(options_.is_byte_level ? append_bytes(word, workspace) : append_characters(word, workspace))) return false;
  constexpr size_t kFew = 48;  // above, a heap is faster
  if (workspace.tokens.size() - begin <= kFew) {
    join_few(begin, workspace);
  } else {
    join_many(begin, workspace);
  }
  return true;
}

bool Bpe::append_bytes(std::string_view word, Workspace& workspace) const {
  bool is_unknown = false;
  for (size_t at = 0; at < word.size(); ++at) {
    const int32_t token = byte_tokens_[static_cast<unsigned char>(word[at])];
    if (token < 0 && unknown_ < 0) return false;
    if (token >= 0 || !is_unknown || !options_.fuses_unknown) {
      workspace.push(token >= 0 ? token : unknown_, at, at + 1);
    } else if (workspace.is_traced) {
      workspace.ranges.back().end = at + 1;
    }
    is_unknown = token < 0;
  }
  return true;
}

bool Bpe::append_characters(std::string_view word, Workspace& workspace) const {
  bool is_waiting = false;  // an unknown token that more characters may join; bytes of a fallback go before it
  ByteRange waiting;
  std::string character;
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    at += code_point_bytes(word[at]);
    std::string_view text = word.substr(begin, at - begin);
    int32_t token;
    if (const auto byte = static_cast<unsigned char>(text[0]); text.size() == 1 && byte < ascii_tokens_.size()) {
      token = ascii_tokens_[byte];
    } else {
      if (!options_.inner_prefix.empty() || !options_.word_suffix.empty()) {
        character = (begin > 0 ? options_.inner_prefix : "") + std::string(text);
        if (at == word.size()) character += options_.word_suffix;
        text = character;
      }
      token = vocabulary().find(text);
    }
    if (token >= 0) {
      if (is_waiting) workspace.push(unknown_, waiting.begin, waiting.end);
      is_waiting = false;
      workspace.push(token, begin, at);
      continue;
    }
    if (options_.falls_back_to_bytes && append_byte_tokens(vocabulary(), text, begin, workspace)) continue;
    if (unknown_ < 0) return false;
    if (is_waiting && !options_.fuses_unknown) workspace.push(unknown_, waiting.begin, waiting.end);
    waiting = {is_waiting && options_.fuses_unknown ? waiting.begin : begin, at};
    is_waiting = true;
  }
  if (is_waiting) workspace.push(unknown_, waiting.begin, waiting.end);
  return true;
}

/// Looks through all pairs for the next to join: quick for short words, quadratic for long ones.
void Bpe::join_few(size_t begin, Workspace& workspace) const {
  std::vector<int32_t>& tokens = workspace.tokens;
  std::vector<PairTable::Value>& pairs = workspace.pairs;
  pairs.clear();
  for (size_t i = begin; i + 1 < tokens.size(); ++i) pairs.push_back(pairs_.find(tokens[i], tokens[i + 1]));
  while (!pairs.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < pairs.size(); ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == PairTable::kNone) return;
    const size_t left = begin + best;
    tokens[left] = pairs[best].token;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(left) + 1);
    if (workspace.is_traced) {
      workspace.ranges[left].end = workspace.ranges[left + 1].end;
      workspace.ranges.erase(workspace.ranges.begin() + static_cast<std::ptrdiff_t>(left) + 1);
    }
    pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(best));
    if (best < pairs.size()) pairs[best] = pairs_.find(tokens[left], tokens[left + 1]);
    if (best > 0) pairs[best - 1] = pairs_.find(tokens[left - 1], tokens[left]);
  }
}

/// Does the same with a heap of pairs and a linked list of tokens, in n log n.
void Bpe::join_many(size_t begin, Workspace& workspace) const {
  struct Candidate {
    PairTable::Value pair;
    size_t left;
    bool operator>(const Candidate& other) const {
      return pair.rank != other.pair.rank ? pair.rank > other.pair.rank : left > other.left;
    }
  };
  std::vector<int32_t>& tokens = workspace.tokens;
  std::vector<PairTable::Value>& pairs = workspace.pairs;  // pair of each token with the next
  std::vector<size_t>&before = workspace.before, &after = workspace.after;
  const size_t count = tokens.size() - begin;
  const auto token = [&](size_t i) -> int32_t& { return tokens[begin + i]; };
  pairs.assign(count, {});
  before.resize(count);
  after.resize(count);
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < count; ++i) {
    before[i] = i - 1;
    after[i] = i + 1;
    if (i + 1 == count) break;
    pairs[i] = pairs_.find(token(i), token(i + 1));
    if (pairs[i].rank != PairTable::kNone) candidates.push_back({pairs[i], i});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap({}, std::move(candidates));
  const auto renew = [&](size_t left) {
    pairs[left] = pairs_.find(token(left), token(after[left]));
    if (pairs[left].rank != PairTable::kNone) heap.push({pairs[left], left});
  };
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    const size_t left = best.left;
    if (pairs[left] != best.pair) continue;  // one of the two is part of another pair by now
    const size_t right = after[left];
    token(left) = best.pair.token;
    token(right) = -1;
    if (workspace.is_traced) workspace.ranges[begin + left].end = workspace.ranges[begin + right].end;
    pairs[left] = pairs[right] = {};
    after[left] = after[right];
    if (after[left] < count) {
      before[after[left]] = left;
      renew(left);
    }
    if (left > 0) renew(before[left]);
  }
  size_t kept = begin;
  for (size_t i = begin; i < tokens.size(); ++i) {
    if (tokens[i] < 0) continue;
    if (workspace.is_traced) workspace.ranges[kept] = workspace.ranges[i];
    tokens[kept++] = tokens[i];
  }
  workspace.shrink(kept);
}

}  // namespace gputrain::tokenizers

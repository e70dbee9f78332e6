#include "unigram.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../text/unicode.hpp"

namespace gputrain::tokenizers {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score

size_t total_bytes(const Vocabulary& vocabulary) {
  size_t bytes = 0;
  for (int64_t token = 0; token < vocabulary.size(); ++token)
    if (const std::string* text = vocabulary.text(token)) bytes += text->size();
  return bytes;
}

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, const std::vector<bool>& is_found, Options options)
    : Model(std::move(vocabulary)),
      scores_(std::move(scores)),
      options_(options),
      children_(total_bytes(this->vocabulary())),
      node_tokens_{-1} {
  double lowest = std::numeric_limits<double>::infinity();
  for (int32_t token = 0; token < this->vocabulary().size(); ++token) {
    const auto index = static_cast<size_t>(token);
    if (!is_found.empty() && !is_found[index]) continue;
    lowest = std::min(lowest, scores_[index]);
    int32_t node = 0;
    for (const char byte : *this->vocabulary().text(token)) {
      const auto fresh = static_cast<int32_t>(node_tokens_.size());
      if (children_.insert(node, static_cast<unsigned char>(byte), {0, fresh})) node_tokens_.push_back(-1);
      node = children_.find(node, static_cast<unsigned char>(byte)).token;
    }
    if (node != 0) node_tokens_[static_cast<size_t>(node)] = token;
  }
  unknown_score_ = lowest - kUnknownPenalty;
  // Rounding decides between two ways that are equally good.
  if (options_.is_single_precision) unknown_score_ = static_cast<double>(static_cast<float>(unknown_score_));
}

/// Counts scores anew from `begin`, so that those of a long text do not lose their decimals.
void Unigram::keep_small(std::vector<Step>& ways, size_t begin) {
  constexpr double kLargest = 100'000;
  const double offset = ways[begin].score;
  if (std::abs(offset) <= kLargest) return;
  const size_t end = std::min(ways.size(), begin + kLongestToken + 1);
  for (size_t i = begin; i < end; ++i)
    if (ways[i].begin != kNone) ways[i].score = static_cast<double>(static_cast<float>(ways[i].score - offset));
}

bool Unigram::find_ways(std::string_view word, std::vector<Step>& ways) const {
  for (size_t begin = 0; begin < word.size();) {
    if (options_.is_single_precision) keep_small(ways, begin);
    const double till_here = ways[begin].score;
    const auto offer = [&](size_t end, double score, int32_t token) {
      score += till_here;
      if (options_.is_single_precision) score = static_cast<double>(static_cast<float>(score));
      Step& way = ways[end];
      if (way.begin == kNone || score > way.score) way = {score, begin, token};
    };
    const size_t character_end = std::min(begin + code_point_bytes(word[begin]), word.size());
    bool has_character = false;
    int32_t node = 0;
    for (size_t at = begin; at < word.size(); ++at) {
      node = children_.find(node, static_cast<unsigned char>(word[at])).token;
      if (node < 0) break;
      const int32_t token = node_tokens_[static_cast<size_t>(node)];
      if (token < 0) continue;
      offer(at + 1, scores_[static_cast<size_t>(token)], token);
      has_character |= at + 1 == character_end;
    }
    if (!has_character) {
      if (options_.unknown < 0) return false;
      offer(character_end, unknown_score_, options_.unknown);
    }
    begin = character_end;
  }
  return true;
}

bool Unigram::append(std::string_view text, size_t begin, Workspace& workspace) const {
  const int32_t token = vocabulary().find(text);
  if (token >= 0) {
    workspace.push(token, begin, begin + text.size());
    return true;
  }
  if (options_.falls_back_to_bytes && append_byte_tokens(vocabulary(), text, begin, workspace)) return true;
  workspace.push(options_.unknown, begin, begin + text.size());
  return options_.unknown >= 0;
}

bool Unigram::encode(std::string_view word, Workspace& workspace) const {
  std::vector<Step> ways(word.size() + 1);
  if (!find_ways(word, ways)) return false;
  std::vector<std::string_view> pieces;  // from the last to the first; unknown neighbours are one
  size_t unknown_end = 0;                // 0: none is open
  for (size_t end = word.size(); end > 0;) {
    const Step& way = ways[end];
    if (way.token == options_.unknown) {
      if (unknown_end == 0) unknown_end = end;
    } else {
      if (unknown_end != 0) pieces.push_back(word.substr(end, unknown_end - end));
      unknown_end = 0;
      pieces.push_back(word.substr(way.begin, end - way.begin));
    }
    end = way.begin;
  }
  if (unknown_end != 0) pieces.push_back(word.substr(0, unknown_end));
  return std::all_of(pieces.rbegin(), pieces.rend(), [&](std::string_view piece) {
    return append(piece, static_cast<size_t>(piece.data() - word.data()), workspace);
  });
}

std::unique_ptr<const Model> read_unigram(const JsonPart& part) {
  Vocabulary vocabulary(part.file());
  std::vector<double> scores;
  for (const JsonPart& entry : part.at("vocab").list()) {
    const auto pair = entry.list();
    if (pair.size() != 2) entry.refuse("expected a token and its score");
    vocabulary.add(pair[0].text(), std::ssize(scores));
    scores.push_back(pair[1].number());
  }
  Unigram::Options options{.falls_back_to_bytes = part.flag("byte_fallback", false)};
  if (part.has("unk_id")) {
    const int64_t unknown = part.at("unk_id").whole_number();
    if (vocabulary.text(unknown) == nullptr) part.at("unk_id").refuse("the vocabulary has no such token");
    options.unknown = static_cast<int32_t>(unknown);
  }
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), std::vector<bool>{}, options);
}

}  // namespace gputrain::tokenizers

#include "examples.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/data/batch.hpp"

namespace gputrain::records {
namespace {

constexpr uint32_t kLearned = uint32_t{1} << 31;

/// Marks the tokens that are learned: those with a learned byte, or which the tokenizer inserts there.
std::vector<bool> learned_tokens(const LearnedText& text, const std::vector<tokenizers::ByteRange>& ranges) {
  std::vector<bool> learned(ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto [begin, end] = ranges[i];
    const auto after = std::ranges::upper_bound(text.learned, begin, {}, &ByteRange::end);
    const auto next =
        std::find_if(after, text.learned.end(), [](const ByteRange& range) { return range.begin < range.end; });
    learned[i] = next != text.learned.end() && next->begin < std::max(end, begin + 1);
  }
  return learned;
}

/// Adds the tokens that the tokenizer wants around a plain text, and the token for its end.
void add_begin_and_end(Example& example, const LearnedText& text, const tokenizers::Tokenizer& tokenizer) {
  const tokenizers::Frame around = tokenizer.frame(false);
  const bool learns_end = !text.learned.empty() && text.learned.back().end == text.text.size();
  const auto add = [&](std::span<const int64_t> tokens) {
    example.tokens.insert(example.tokens.end(), tokens.begin(), tokens.end());
    example.learned.resize(example.tokens.size(), learns_end);
  };
  example.tokens.insert(example.tokens.begin(), around.before.begin(), around.before.end());
  example.learned.insert(example.learned.begin(), around.before.size(), false);
  add(around.behind);
  const auto end = tokenizer.end_token();
  if (end && (example.tokens.empty() || example.tokens.back() != *end)) add({&*end, 1});
}

}  // namespace

Example example_of(const LearnedText& text, const tokenizers::Tokenizer& tokenizer, const std::string& name) {
  tokenizers::TracedTokens traced = tokenizer.encode_traced(text.text, name);
  if (text.is_plain && traced.tokens.empty()) throw Error(ExitCode::data, {.what = "the text is empty"});
  Example example{.tokens = std::move(traced.tokens), .learned = learned_tokens(text, traced.ranges)};
  if (text.is_plain) add_begin_and_end(example, text, tokenizer);
  return example;
}

std::vector<uint32_t> Example::stored() const {
  std::vector<uint32_t> stored(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    stored[i] = static_cast<uint32_t>(tokens[i]) | (learned[i] ? kLearned : 0);
  }
  return stored;
}

int64_t learned_count(std::span<const uint32_t> stored) {
  return stored.empty() ? 0 : std::ranges::count_if(stored.subspan(1), [](uint32_t t) { return (t & kLearned) != 0; });
}

void read_example(std::span<const uint32_t> stored, int64_t* tokens, int64_t* targets) {
  for (size_t i = 0; i < stored.size(); ++i) {
    tokens[i] = stored[i] & ~kLearned;
    const bool is_learned = i + 1 < stored.size() && (stored[i + 1] & kLearned) != 0;
    targets[i] = is_learned ? stored[i + 1] & ~kLearned : kIgnoreIndex;
  }
}

}  // namespace gputrain::records

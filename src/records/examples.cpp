#include "examples.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/core/batch.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::records {
namespace {

constexpr uint32_t kLearned = uint32_t{1} << 31;

/// Borders of the learned ranges, in order.
std::vector<size_t> borders_of(const LearnedText& text) {
  std::vector<size_t> borders;
  for (const ByteRange& range : text.learned) {
    borders.push_back(range.begin);
    borders.push_back(range.end);
  }
  return borders;
}

/// The number of tokens before each border, if no token reaches over one; empty if one may.
std::vector<size_t> counts_of_parts(const LearnedText& text, const std::vector<int64_t>& tokens,
                                    const tokenizers::Tokenizer& tokenizer, const std::string& name) {
  std::vector<size_t> counts;
  std::vector<int64_t> joined;
  size_t begin = 0;
  std::vector<size_t> ends = borders_of(text);
  ends.push_back(text.text.size());
  for (const size_t end : ends) {
    if (end > begin) {
      const auto part = tokenizer.encode(std::string_view(text.text).substr(begin, end - begin), name);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    counts.push_back(joined.size());
    begin = end;
  }
  counts.pop_back();
  return joined == tokens ? counts : std::vector<size_t>();
}

/// Text between special tokens, or a special token.
struct Section {
  size_t text_begin, text_end, first, last;  // bytes of the text, and its tokens [first, last)
  bool is_special;
};

std::vector<Section> sections_of(const std::string& text, const std::vector<int64_t>& tokens,
                                 const tokenizers::Tokenizer& tokenizer) {
  std::vector<Section> sections;
  size_t at = 0, first = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokenizer.is_special(tokens[i])) continue;
    const std::string spelling = tokenizer.decode(std::span(tokens).subspan(i, 1));
    const size_t found = text.find(spelling, at);
    if (found == std::string::npos) continue;
    if (i > first) sections.push_back({at, found, first, i, false});
    at = found + spelling.size();
    sections.push_back({found, at, i, i + 1, true});
    first = i + 1;
  }
  if (first < tokens.size()) sections.push_back({at, text.size(), first, tokens.size(), false});
  return sections;
}

/// The number of tokens that end at or before byte `place` of a section. Decoding its first tokens gives back the text
/// before them, but for a space that the tokenizer puts or drops at its begin.
size_t count_within(const Section& section, size_t place, const std::vector<int64_t>& tokens,
                    const tokenizers::Tokenizer& tokenizer) {
  if (section.is_special) return section.first;
  const auto own = std::span(tokens).subspan(section.first, section.last - section.first);
  const size_t decoded = tokenizer.decode(own).size(), bytes = section.text_end - section.text_begin;
  size_t low = 0, high = own.size();  // the first `low` tokens end at or before it, the first `high` + 1 do not
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const size_t end = tokenizer.decode(own.first(middle + 1)).size() + bytes;
    if (end <= place - section.text_begin + decoded) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return section.first + low;
}

/// The number of tokens that end at or before byte `place` of the text.
size_t count_before(size_t place, const std::vector<Section>& sections, const std::vector<int64_t>& tokens,
                    const tokenizers::Tokenizer& tokenizer) {
  for (const Section& section : sections) {
    if (place < section.text_end)
      return place < section.text_begin ? section.first : count_within(section, place, tokens, tokenizer);
  }
  return tokens.size();
}

/// Which tokens of the text are learned.
std::vector<bool> learned_tokens(const LearnedText& text, const std::vector<int64_t>& tokens,
                                 const tokenizers::Tokenizer& tokenizer, const std::string& name) {
  const std::vector<size_t> counts = counts_of_parts(text, tokens, tokenizer, name);
  const std::vector<Section> sections =
      counts.empty() ? sections_of(text.text, tokens, tokenizer) : std::vector<Section>();
  std::vector<bool> learned(tokens.size());
  for (size_t i = 0; i < text.learned.size(); ++i) {
    const auto [begin, end] = text.learned[i];
    if (begin == end) continue;
    size_t first = 0, last = 0;
    if (counts.empty()) {
      first = count_before(begin, sections, tokens, tokenizer);
      last = std::min(count_before(end - 1, sections, tokens, tokenizer) + 1, tokens.size());
    } else {
      first = counts[2 * i];
      last = counts[2 * i + 1];
    }
    for (size_t at = first; at < last; ++at) learned[at] = true;
  }
  return learned;
}

/// Adds the tokens that the tokenizer wants around a plain text, and the token for its end.
void add_begin_and_end(Example& example, const LearnedText& text, const tokenizers::Tokenizer& tokenizer,
                       const std::string& name) {
  std::vector<int64_t> whole = tokenizer.encode_whole(text.text, name);
  auto inner = std::ranges::search(whole, example.tokens);
  if (std::ssize(inner) != std::ssize(example.tokens)) {  // none is known to do that
    whole = example.tokens;
    inner = whole;
  }
  const auto before = static_cast<size_t>(inner.begin() - whole.begin());
  const bool learns_end = !text.learned.empty() && text.learned.back().end == text.text.size();
  std::vector<bool> learned(whole.size());
  std::copy(example.learned.begin(), example.learned.end(), learned.begin() + static_cast<std::ptrdiff_t>(before));
  for (size_t at = before + example.learned.size(); at < whole.size(); ++at) learned[at] = learns_end;
  const auto end = tokenizer.end_token();
  if (end && (whole.empty() || whole.back() != *end)) {
    whole.push_back(*end);
    learned.push_back(learns_end);
  }
  example = {std::move(whole), std::move(learned)};
}

}  // namespace

Example example_of(const LearnedText& text, const tokenizers::Tokenizer& tokenizer, const std::string& name) {
  Example example{.tokens = tokenizer.encode(text.text, name), .learned = {}};
  example.learned = learned_tokens(text, example.tokens, tokenizer, name);
  if (text.is_plain) add_begin_and_end(example, text, tokenizer, name);
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

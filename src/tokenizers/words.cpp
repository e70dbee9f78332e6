// The words of the training data, for encoders that are trained from nothing.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "gputrain/core/error.hpp"
#include "published/text/traced_text.hpp"
#include "published/text/unicode.hpp"
#include "token_buffer.hpp"
#include "utf8.hpp"

namespace gputrain::tokenizers {
namespace {

struct WordsSpec {
  int64_t vocabulary_size = 30'000, min_count = 2;

  static void describe(config::Description<WordsSpec>& d) {
    d.summary("lower-case words and punctuation of the training data, the most frequent first; others are [UNK]");
    d.key("vocabulary_size", &WordsSpec::vocabulary_size,
          "tokens at most, with five for [PAD], [UNK], [CLS], [SEP], [MASK]")
        .range(6, 10'000'000)
        .unit("tokens");
    d.key("min_count", &WordsSpec::min_count, "how often a word must occur").range(1, 1'000'000);
  }
};

enum Special : int64_t { kPad, kUnknown, kBegin, kEnd, kMask, kFirstWord };
constexpr std::array<const char*, kFirstWord> kSpecials{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

class Words final : public Tokenizer {
 public:
  Words(const WordsSpec& spec, const TokenizerRequest& request) {
    std::unordered_map<std::string, int64_t> counts;
    for (size_t i = 0; i < request.texts.size(); ++i)
      each_word(TracedText(request.texts[i], 0, false), request.names[i],
                [&](const std::string& word, ByteRange) { ++counts[word]; });
    std::vector<std::pair<int64_t, std::string>> order;  // by count, then by text
    for (const auto& [word, count] : counts)
      if (count >= spec.min_count) order.emplace_back(-count, word);
    std::ranges::sort(order);
    order.resize(std::min(order.size(), static_cast<size_t>(spec.vocabulary_size - kFirstWord)));
    texts_.assign(kSpecials.begin(), kSpecials.end());
    for (auto& [count, word] : order) texts_.push_back(std::move(word));
    for (size_t i = kFirstWord; i < texts_.size(); ++i) numbers_.emplace(texts_[i], static_cast<int64_t>(i));
  }

  int64_t vocabulary_size() const override { return std::ssize(texts_); }
  Frame frame(bool has_two_texts) const override {
    Frame frame{.before = {kBegin}, .between = {}, .behind = {kEnd}, .second_type = has_two_texts ? 1 : 0};
    if (has_two_texts) frame.between = {kEnd};
    return frame;
  }
  std::optional<int64_t> mask_token() const override { return kMask; }
  bool is_special(int64_t token) const override { return token < kFirstWord && token != kUnknown; }
  std::vector<std::string> token_texts() const override { return texts_; }

  void tokenize(std::string_view text, const std::string& name, const Take& take,
                std::vector<ByteRange>* ranges) const override {
    TokenBuffer buffer(take, ranges);
    each_word(TracedText(text, 0, buffer.is_traced()), name, [&](const std::string& word, ByteRange range) {
      const auto found = numbers_.find(word);
      buffer.push(found == numbers_.end() ? kUnknown : found->second, range);
    });
    buffer.flush();
  }

  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens) {
      const bool is_known = token >= 0 && token < vocabulary_size();
      text += (text.empty() ? "" : " ") + (is_known ? texts_[static_cast<size_t>(token)] : "\uFFFD");
    }
    return text;
  }

 private:
  /// Words, and characters of punctuation one by one, in lower case.
  template <class Take>
  static void each_word(TracedText text, const std::string& name, const Take& take) {
    check_utf8(text.text, name);
    lower_case(text);
    size_t word_begin = 0;
    const auto take_part = [&](size_t begin, size_t end) {
      if (begin < end) take(text.text.substr(begin, end - begin), text.origin(begin, end));
      word_begin = end;
    };
    for (size_t at = 0; at < text.text.size();) {
      const size_t begin = at;
      const int64_t point = code_point(text.text, at);
      if (!is_white_space(point) && !is_punctuation(point)) continue;
      take_part(word_begin, begin);
      if (is_white_space(point)) {
        word_begin = at;
      } else {
        take_part(begin, at);
      }
    }
    take_part(word_begin, text.text.size());
  }

  std::vector<std::string> texts_;
  std::unordered_map<std::string, int64_t> numbers_;
};

const config::Registered<Words, WordsSpec> registered_words{catalog(), "words",
                                                            "one token for each frequent word of the training data"};

}  // namespace
}  // namespace gputrain::tokenizers

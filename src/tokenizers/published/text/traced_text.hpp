// A text that is changed step by step, and the origins of its bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../../utf8.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::tokenizers {

/// Returns `origins` are those of a text's bytes and of its end; null: nobody asks.
inline ByteRange origin_of(const ByteRange* origins, size_t begin, size_t end) {
  if (origins == nullptr) return {};
  const size_t first = origins[begin].begin;
  return {first, begin < end ? std::max(first, origins[end - 1].end) : first};
}

struct TracedText {
  TracedText() = default;
  /// Takes the text as it is given; its first byte is byte `offset` of what ranges refer to.
  TracedText(std::string_view given, size_t offset, bool is_traced) : text(given) {
    for (size_t i = 0; is_traced && i <= text.size(); ++i) origins.push_back({offset + i, offset + i + 1});
  }

  const ByteRange* trace() const { return origins.empty() ? nullptr : origins.data(); }
  ByteRange origin(size_t begin, size_t end) const { return origin_of(trace(), begin, end); }

  std::string text;
  std::vector<ByteRange> origins;  // place of each byte, and of the end, in the given text; empty: nobody asks
};

/// Writes what a text becomes, from left to right.
class Rewriter {
 public:
  Rewriter(std::string_view before, const ByteRange* origins) : before_(before), origins_(origins) {
    after_.text.reserve(before.size());
  }
  explicit Rewriter(const TracedText& before) : Rewriter(before.text, before.trace()) {}

  bool is_traced() const { return origins_ != nullptr; }
  /// Takes over bytes [begin, end).
  void keep(size_t begin, size_t end) {
    after_.text.append(before_, begin, end - begin);
    if (is_traced()) after_.origins.insert(after_.origins.end(), origins_ + begin, origins_ + end);
  }
  /// Writes in place of bytes [begin, end); if these are none, inserts.
  void put(std::string_view bytes, size_t begin, size_t end) {
    after_.text += bytes;
    trace(begin, end);
  }
  void put(int64_t point, size_t begin, size_t end) {
    append_utf8(point, after_.text);
    trace(begin, end);
  }
  TracedText finish() {
    if (is_traced()) after_.origins.push_back(origins_[before_.size()]);
    return std::move(after_);
  }

 private:
  void trace(size_t begin, size_t end) {
    if (is_traced()) after_.origins.resize(after_.text.size(), origin_of(origins_, begin, end));
  }

  std::string_view before_;
  const ByteRange* origins_;
  TracedText after_;
};

}  // namespace gputrain::tokenizers

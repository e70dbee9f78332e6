// The memory of one call of encode(), kept for the next.
#pragma once

#include <cstdint>
#include <vector>

#include "../text/regex.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"
#include "pair_table.hpp"
#include "word_cache.hpp"

namespace gputrain::tokenizers {

/// The memory of one thread at a time, and of one tokenizer: the cache holds its tokens.
struct Workspace {
  MatchMemory matches;
  WordCache cache;
  std::vector<int32_t> tokens;    // tokens of one word
  std::vector<ByteRange> ranges;  // range of each of them in the word, if is_traced
  bool is_traced = false;
  std::vector<PairTable::Value> pairs;  // a model's own, while it works on one word
  std::vector<size_t> before, after;    // the same

  void push(int32_t token, size_t begin, size_t end) {
    tokens.push_back(token);
    if (is_traced) ranges.push_back({begin, end});
  }
  void shrink(size_t count) {
    tokens.resize(count);
    if (is_traced) ranges.resize(count);
  }
};

}  // namespace gputrain::tokenizers

// The memory of one call of encode(), kept for the next.
#pragma once

#include <cstdint>
#include <vector>

#include "pair_table.hpp"
#include "regex.hpp"
#include "word_cache.hpp"

namespace gputrain::tokenizers {

/// Of one thread at a time, and of one tokenizer: the cache holds its tokens.
struct Workspace {
  MatchMemory matches;
  WordCache cache;
  std::vector<int32_t> tokens;          // of one word
  std::vector<PairTable::Value> pairs;  // a model's own, while it works on one word
  std::vector<size_t> before, after;    // the same
};

}  // namespace gputrain::tokenizers

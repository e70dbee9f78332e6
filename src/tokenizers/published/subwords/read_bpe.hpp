// The files from which a Bpe is made.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bpe.hpp"

namespace gputrain::tokenizers {

/// Reads "model" of a tokenizer.json.
std::unique_ptr<const Model> read_bpe(const JsonPart& part, bool is_byte_level);

struct Merge {
  std::string left, right;
  std::string where;  // for messages
};
/// Returns the pairs of a list of merges, the first first. Throws Error(data) if a pair or what it becomes is no token.
PairTable pairs_of(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const std::string& inner_prefix);

/// Pairs where only tokens have a rank, lowest first: each way to make a token of two others.
PairTable pairs_of(const Vocabulary& vocabulary, std::span<const uint32_t> ranks);

}  // namespace gputrain::tokenizers

// Tokens of one text or two within their frame, as an encoder reads them, with their types.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gputrain/data/dataset.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::records {

/// A sample's texts, cut and framed.
struct FramedTexts {
  std::vector<int32_t> tokens;
  size_t second = 0;      // begin of the tokens of the second type; tokens.size(): there are none
  int64_t full_size = 0;  // number of tokens before the cut
};

/// Puts texts into their frame. If they are too long for `most` tokens, the longer one is cut at its end until they
/// fit, like transformers' fast tokenizers do ("longest_first").
FramedTexts framed(const tokenizers::Tokenizer& tokenizer, std::vector<int64_t> first,
                   std::optional<std::vector<int64_t>> second, int64_t most);

/// Words, each encoded by itself with the space before it that some tokenizers write into its first token.
struct EncodedWords {
  std::vector<int64_t> tokens, begins;  // place of each word's first token; -1: it has none
  void add(const std::string& word, const tokenizers::Tokenizer& tokenizer, const std::string& place);
};

bool is_tokenizer_built_from_texts(const data::DatasetRequest& request);

/// Returns the tokenizer of a split: that of the training data, or the one that the job names. If that is built from
/// texts, `texts` are these, and `names` their paths; empty: all are of the request's path.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_for(const data::DatasetRequest& request,
                                                           std::span<const std::string> texts,
                                                           std::span<const std::string> names = {});

}  // namespace gputrain::records

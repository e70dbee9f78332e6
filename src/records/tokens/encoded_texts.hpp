// One text or two as an encoder reads them: tokens within their frame, and which text each is of.
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
  size_t second = 0;      // where tokens of the second type begin; tokens.size(): there is none
  int64_t full_size = 0;  // tokens before they were cut
};

/// Puts texts into their frame. If they are too long for `most` tokens, the longer one is cut at its end until they
/// fit, as transformers' fast tokenizers do ("longest_first").
FramedTexts framed(const tokenizers::Tokenizer& tokenizer, std::vector<int64_t> first,
                   std::optional<std::vector<int64_t>> second, int64_t most);

/// Words, each encoded by itself with the space before it that some tokenizers write into its first token.
struct EncodedWords {
  std::vector<int64_t> tokens, begins;  // of each word the place of its first token; -1: it has none
  void add(const std::string& word, const tokenizers::Tokenizer& tokenizer, const std::string& place);
};

bool is_tokenizer_built_from_texts(const data::DatasetRequest& request);

/// The tokenizer of a split: that of the training data, or the one that the job names. `texts` are what it is built
/// from, if it is built from texts, and `names` their paths; empty: all are of the request's path.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_for(const data::DatasetRequest& request,
                                                           std::span<const std::string> texts,
                                                           std::span<const std::string> names = {});

}  // namespace gputrain::records

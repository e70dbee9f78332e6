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

/// Samples of framed texts in memory, one after the other.
class TextStore {
 public:
  void add(const FramedTexts& texts);
  void add_bad() { add({}); }

  int64_t size() const noexcept { return static_cast<int64_t>(ends_.size()); }
  std::span<const int32_t> tokens(int64_t index) const noexcept;
  int64_t length(int64_t index) const noexcept { return static_cast<int64_t>(tokens(index).size()); }
  /// Writes tokens, and types where `types` is not null. Both have room for length(index).
  void read(int64_t index, int64_t* tokens, int64_t* types) const;
  bool has_types() const noexcept { return has_types_; }  // any token of the second type
  std::span<const int32_t> all() const noexcept { return tokens_; }

 private:
  std::vector<int32_t> tokens_;
  std::vector<int64_t> ends_, seconds_;  // of each sample: its end, and where its second type begins
  bool has_types_ = false;
};

bool is_tokenizer_built_from_texts(const data::DatasetRequest& request);

/// The tokenizer of a split: that of the training data, or the one that the job names. `texts` are what it is built
/// from, if it is built from texts, and `names` their paths; empty: all are of the request's path.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_for(const data::DatasetRequest& request,
                                                           std::span<const std::string> texts,
                                                           std::span<const std::string> names = {});

}  // namespace gputrain::records

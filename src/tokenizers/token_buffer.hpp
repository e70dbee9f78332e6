// Collects tokens and passes them on in blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::tokenizers {

class TokenBuffer {
 public:
  /// `ranges`: gets those of the tokens, unless it is null.
  TokenBuffer(const Tokenizer::Take& take, std::vector<ByteRange>* ranges) : take_(take), ranges_(ranges) {}

  bool is_traced() const { return ranges_ != nullptr; }
  void push(int64_t token, ByteRange range) {
    if (is_traced()) ranges_->push_back(range);
    push(token);
  }

  /// Adds a token of a text that is not traced.
  void push(int64_t token) {
    tokens_[count_++] = token;
    if (count_ == tokens_.size()) flush();
  }
  /// Call at the end of the text.
  void flush() {
    if (count_ > 0) take_({tokens_.data(), count_});
    count_ = 0;
  }

 private:
  const Tokenizer::Take& take_;
  std::vector<ByteRange>* ranges_;
  std::array<int64_t, 4096> tokens_;
  size_t count_ = 0;
};

}  // namespace gputrain::tokenizers

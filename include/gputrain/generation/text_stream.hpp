// Turns tokens into text one by one, as a model writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::generation {

/// A character may take several tokens, and a tokenizer may write a token in another way at the begin of a text. So
/// text comes when it is whole, in valid UTF-8, and as it reads after the tokens before.
class TextStream {
 public:
  /// `is_hidden`: tokens that are control, not text; null: there are none. `stops`: the text ends before the first of
  /// them. The tokenizer must live as long.
  TextStream(const tokenizers::Tokenizer& tokenizer, std::span<const int64_t> before,
             std::function<bool(int64_t token)> is_hidden = {}, std::vector<std::string> stops = {});

  /// Returns the text that the token completes; empty while a character is not whole, or while it may become a stop.
  std::string add(int64_t token);
  /// Returns the text that is held back at the end; U+FFFD stands for a character that is not whole.
  std::string finish();
  /// Returns whether a stop has come.
  bool is_stopped() const noexcept { return is_stopped_; }

 private:
  std::string take(bool is_last);
  std::string until_stop(const std::string& more, bool is_last);

  const tokenizers::Tokenizer& tokenizer_;
  std::function<bool(int64_t)> is_hidden_;
  std::vector<int64_t> tokens_;  // the newest, of which the first `told_` are told
  size_t told_ = 0;
  std::vector<std::string> stops_;
  std::string held_;  // text that may become a stop
  bool is_stopped_ = false;
};

}  // namespace gputrain::generation

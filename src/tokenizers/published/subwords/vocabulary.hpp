// The tokens of a model: their texts by number, and their numbers by text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../files/json_part.hpp"

namespace gputrain::tokenizers {

/// Numbers of tokens must be below this; no tokenizer has as many, and a wrong number must not use up the memory.
inline constexpr int64_t kMostTokens = int64_t{1} << 24;

/// Limit of the bytes of a token's text. Published ones have hundreds; the work for a token grows with their square.
inline constexpr size_t kLongestToken = 4096;

class Vocabulary {
 public:
  /// `where` names its file in messages.
  explicit Vocabulary(std::string where) : where_(std::move(where)) {}

  /// Throws Error(data) if the number is out of range or in use, if the text has another number, or if it is longer
  /// than kLongestToken.
  void add(std::string_view text, int64_t token);
  /// Finds a token; -1 if there is none.
  int32_t find(std::string_view text) const {
    const auto found = numbers_.find(text);
    return found == numbers_.end() ? -1 : found->second;
  }
  /// Returns null if no token has this number.
  const std::string* text(int64_t token) const {
    return token >= 0 && token < size() ? texts_[static_cast<size_t>(token)] : nullptr;
  }
  /// Returns the highest number plus 1; numbers between may be unused.
  int64_t size() const { return std::ssize(texts_); }
  /// Returns how many tokens there are.
  size_t count() const { return numbers_.size(); }
  const std::string& where() const { return where_; }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  std::string where_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> numbers_;
  std::vector<const std::string*> texts_;  // into numbers_, whose keys stay where they are
};

/// Reads an object from texts to numbers.
Vocabulary read_vocabulary(const JsonPart& part);

}  // namespace gputrain::tokenizers

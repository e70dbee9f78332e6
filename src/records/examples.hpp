// Texts as tokens, each with whether it is learned.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gputrain/tokenizers/tokenizer.hpp"
#include "learned_text.hpp"

namespace gputrain::records {

struct Example {
  std::vector<int64_t> tokens;
  std::vector<bool> learned;  // for each token

  /// Four bytes for a token; the highest bit says that it is learned.
  std::vector<uint32_t> stored() const;
};

/// The tokens are those of the text as a whole. A token is learned if a byte of it is. Throws Error(data) if the text
/// cannot be encoded.
Example example_of(const LearnedText& text, const tokenizers::Tokenizer& tokenizer, const std::string& name);

/// Examples in memory, one after the other.
class Examples {
 public:
  struct Problem {
    std::string what, where;
  };

  void add(std::span<const uint32_t> stored);  // tokens of Example::stored()
  void add_bad(Problem problem);

  int64_t size() const noexcept { return static_cast<int64_t>(ends_.size()); }
  int64_t length(int64_t index) const noexcept;  // 0: a bad one
  int64_t bad_count() const noexcept { return static_cast<int64_t>(bad_.size()); }
  const Problem& problem(int64_t index) const { return bad_.at(index); }
  const std::map<int64_t, Problem>& problems() const noexcept { return bad_; }

  /// Writes tokens and targets of an example: the target of a place is the next token, where that is learned, else
  /// kIgnoreIndex; so is the last one. Both have room for length(index).
  void read(int64_t index, int64_t* tokens, int64_t* targets) const;
  int64_t learned_count(int64_t index) const;  // targets that count
  std::span<const uint32_t> raw() const noexcept { return tokens_; }
  std::span<const int64_t> ends() const noexcept { return ends_; }  // of each, in raw()

 private:
  std::span<const uint32_t> stored(int64_t index) const noexcept;

  std::vector<uint32_t> tokens_;
  std::vector<int64_t> ends_;
  std::map<int64_t, Problem> bad_;
};

}  // namespace gputrain::records

// Text as numbers and back. One kind per file in src/tokenizers; `data.text.tokenizer` names one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/config/catalog.hpp"

namespace gputrain::tokenizers {

/// In the metadata of weights: the texts of their tokens, or the names of their classes, as a JSON array.
inline constexpr const char* kTargets = "targets";

/// Built once, then used by any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer();

  /// Tokens are 0 to vocabulary_size() - 1.
  virtual int64_t vocabulary_size() const = 0;

  /// Gives the tokens of `text` to `take`, in order, some at a time: a text may be too large for all of its tokens to
  /// be in memory. Throws Error(data) that names `name`, line and column where it has no token for a part of the text.
  using Take = std::function<void(std::span<const int64_t>)>;
  virtual void encode(std::string_view text, const std::string& name, const Take& take) const = 0;
  /// All tokens of a short text.
  std::vector<int64_t> encode(std::string_view text, const std::string& name) const;

  /// Tokens outside the vocabulary become U+FFFD.
  virtual std::string decode(std::span<const int64_t> tokens) const = 0;

  /// The text of each token.
  virtual std::vector<std::string> token_texts() const;

  /// Adds to the metadata of weights what says which tokens they know: kTargets.
  virtual void save(std::map<std::string, std::string>& metadata) const;
};

/// What a tokenizer is built from.
struct TokenizerRequest {
  std::span<const std::string> texts;  // of the training data
  std::span<const std::string> names;  // of these texts, for messages: paths
};

using TokenizerCatalog = config::Catalog<Tokenizer, const TokenizerRequest&>;
TokenizerCatalog& catalog();

}  // namespace gputrain::tokenizers

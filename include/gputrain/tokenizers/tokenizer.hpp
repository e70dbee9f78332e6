// Converts text to tokens and back. One kind per file in src/tokenizers; `data.text.tokenizer` names one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/config/catalog.hpp"

namespace gputrain::tokenizers {

/// Key in the metadata of weights: the texts of tokens, or the names of classes, as a JSON array.
inline constexpr const char* kTargets = "targets";

/// The tokens around a text that stands for itself, or around and between two.
struct Frame {
  std::vector<int64_t> before, between, behind;
  int64_t second_type = 0;  // type of the second text's tokens and of `behind`, if a model tells texts apart; else 0
};

/// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0, end = 0;

  bool operator==(const ByteRange&) const = default;
};

/// A text's tokens, and for each the bytes of the text that it stands for.
struct TracedTokens {
  std::vector<int64_t> tokens;
  std::vector<ByteRange> ranges;
};

/// A tokenizer. Immutable after construction, so thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer();

  /// Returns the number of tokens: they are numbers from 0 to vocabulary_size() - 1.
  virtual int64_t vocabulary_size() const = 0;

  /// Passes the tokens of `text` to `take`, in order and in several calls, because all tokens of a large text may not
  /// fit in memory. Throws Error(data) if a part of the text has no token; it names `name`, line and column.
  using Take = std::function<void(std::span<const int64_t>)>;
  void encode(std::string_view text, const std::string& name, const Take& take) const {
    tokenize(text, name, take, nullptr);
  }
  /// Returns all tokens of a short text.
  std::vector<int64_t> encode(std::string_view text, const std::string& name) const;
  /// Returns the same tokens with their ranges, in order of their begins. Several tokens may stand for the same bytes,
  /// for example if a character is replaced by others. A token that the tokenizer inserts, such as a space before the
  /// text, has an empty range. Bytes that it drops, such as spaces beside a special token, are in no range.
  TracedTokens encode_traced(std::string_view text, const std::string& name) const;

  /// Returns the tokens that belong around one text, or around and between two.
  virtual Frame frame(bool has_two_texts) const;
  /// Returns the tokens of a short text that stands for itself, within its frame.
  std::vector<int64_t> encode_whole(std::string_view text, const std::string& name) const;

  /// Returns the token after the end of a text; none: the vocabulary has no such token.
  virtual std::optional<int64_t> end_token() const { return std::nullopt; }

  /// Returns the token in place of one that a model guesses; none: the vocabulary has no such token.
  virtual std::optional<int64_t> mask_token() const { return std::nullopt; }

  /// Returns whether a token is control, not text: its text stands for itself, and the text behind is encoded as if it
  /// began.
  virtual bool is_special(int64_t /*token*/) const { return false; }

  /// Returns the folder of its files; empty: it was not read from files.
  virtual std::filesystem::path folder() const { return {}; }
  /// Returns the one file of the folder that it was read from, if the job names it; empty: the best one of the folder.
  virtual std::filesystem::path source() const { return {}; }

  /// Returns the text of tokens. Tokens outside the vocabulary become U+FFFD.
  virtual std::string decode(std::span<const int64_t> tokens) const = 0;

  virtual std::vector<std::string> token_texts() const;

  /// Writes the texts of the tokens into the metadata of weights, under kTargets.
  virtual void save(std::map<std::string, std::string>& metadata) const;

 protected:
  /// Does the work of encode(). Appends the range of each token to `ranges`, unless that is null.
  virtual void tokenize(std::string_view text, const std::string& name, const Take& take,
                        std::vector<ByteRange>* ranges) const = 0;
};

/// The input for building a tokenizer.
struct TokenizerRequest {
  std::span<const std::string> texts;  // texts of the training data
  std::span<const std::string> names;  // paths of these texts, for messages
  std::string pretrained = {};         // the job's model.pretrained; empty: none
};

using TokenizerCatalog = config::Catalog<Tokenizer, const TokenizerRequest&>;
TokenizerCatalog& catalog();

}  // namespace gputrain::tokenizers

// Tokenizers of published language models, read from the files that lie beside their weights.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::tokenizers {

/// Gives the same tokens as the reference program of its file format. Immutable, so thread-safe.
class PublishedTokenizer final : public Tokenizer {
 public:
  struct Parts;
  explicit PublishedTokenizer(Parts parts);
  ~PublishedTokenizer() override;

  /// Returns the highest number of a token plus 1; numbers between may be unused.
  int64_t vocabulary_size() const override;

  Frame frame(bool has_two_texts) const override;
  /// Returns the one that end_token_beside() spells.
  std::optional<int64_t> end_token() const override;
  /// Returns "[MASK]" or "<mask>", if the file has it as a special token.
  std::optional<int64_t> mask_token() const override;

  /// Returns the text. Special tokens appear as they are spelled.
  std::string decode(std::span<const int64_t> tokens) const override;

  /// Finds the token that the file spells like this, such as "<|im_end|>".
  std::optional<int64_t> find(std::string_view spelling) const;
  bool is_special(int64_t token) const override;

  /// Adds no special tokens, but finds those that the text spells out. Throws Error(data) if the text is not UTF-8.
  void tokenize(std::string_view text, const std::string& name, const Take& take,
                std::vector<ByteRange>* ranges) const override;

 private:
  class Encoder;
  std::unique_ptr<const Encoder> encoder_;
};

/// Returns the end token of the model whose tokenizer this is, as its tokenizer_config.json or special_tokens_map.json
/// spells it; empty: they do not say.
std::string end_token_beside(const std::filesystem::path& folder_or_file);
/// Returns the same of its begin token.
std::string begin_token_beside(const std::filesystem::path& folder_or_file);
std::string padding_token_beside(const std::filesystem::path& folder_or_file);

/// The files of the published tokenizer that `choice` names, the one of the folder of `pretrained` weights too; empty:
/// it is of another kind.
std::filesystem::path published_path(const config::Choice& choice, const std::filesystem::path& pretrained);

/// Returns whether a folder has the files of a tokenizer.
bool is_published(const std::filesystem::path& folder);

/// Reads a tokenizer from a file, or from the folder of a model: tokenizer.json, or else vocab.json with merges.txt,
/// vocab.txt, a SentencePiece model, or ranks in tiktoken's format. Throws Error(data) that names what is wrong or not
/// supported.
std::shared_ptr<const PublishedTokenizer> read_published(const std::filesystem::path& folder_or_file);

/// Returns a folder's tokenizer.json, or the one that its vocab.json with merges.txt comes to. Null: it has neither.
nlohmann::json tokenizer_json_of(const std::filesystem::path& folder);

/// The pieces of a SentencePiece model, by their numbers.
struct SentencePieces {
  bool are_of_bpe = false, prepends_space = false;
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<int32_t> kinds;  // 1: normal, 2: unknown, 3: control, 4: user-defined, 5: unused, 6: a byte
};
/// Reads the pieces; empty: what says most in the folder is no SentencePiece model.
std::optional<SentencePieces> sentence_pieces_of(const std::filesystem::path& folder);

}  // namespace gputrain::tokenizers

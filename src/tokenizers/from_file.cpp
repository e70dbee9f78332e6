#include "gputrain/tokenizers/published.hpp"

namespace gputrain::tokenizers {
namespace {

struct FromFileOptions {
  std::string tokenizer_path;

  static void describe(config::Description<FromFileOptions>& d) {
    d.key("tokenizer_path", &FromFileOptions::tokenizer_path,
          "tokenizer.json, a SentencePiece model or tiktoken's ranks, or the folder of a model that has one of them, "
          "vocab.json with merges.txt, or vocab.txt")
        .required()
        .path();
  }
};

/// A published tokenizer as an entry of the catalog.
class FromFile final : public Tokenizer {
 public:
  FromFile(const FromFileOptions& options, const TokenizerRequest&)
      : published_(read_published(options.tokenizer_path)) {}

  int64_t vocabulary_size() const override { return published_->vocabulary_size(); }
  void encode(std::string_view text, const std::string& name, const Take& take) const override {
    published_->encode(text, name, take);
  }
  std::string decode(std::span<const int64_t> tokens) const override { return published_->decode(tokens); }

 private:
  std::shared_ptr<const PublishedTokenizer> published_;
};

const config::Registered<FromFile, FromFileOptions> registered_published{
    catalog(), "published", "that of a published model, read from its files"};

}  // namespace
}  // namespace gputrain::tokenizers

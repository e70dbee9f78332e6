#include "token_buffer.hpp"
#include "utf8.hpp"

namespace gputrain::tokenizers {
namespace {

class Bytes final : public Tokenizer {
 public:
  Bytes(const config::NoOptions&, const TokenizerRequest&) {}

  int64_t vocabulary_size() const override { return 256; }

  void tokenize(std::string_view text, const std::string&, const Take& take,
                std::vector<ByteRange>* ranges) const override {
    TokenBuffer buffer(take, ranges);
    for (size_t i = 0; i < text.size(); ++i) buffer.push(static_cast<unsigned char>(text[i]), {i, i + 1});
    buffer.flush();
  }

  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens) {
      if (token < 0 || token >= vocabulary_size()) {
        append_utf8(kReplacement, text);
      } else {
        text += static_cast<char>(static_cast<unsigned char>(token));
      }
    }
    return text;
  }
};

const config::Registered<Bytes, config::NoOptions> registered_bytes{catalog(), "bytes",
                                                                    "one token for each byte, 256 in all"};

}  // namespace
}  // namespace gputrain::tokenizers

#include "model.hpp"

#include <cstdio>

#include "read_bpe.hpp"

namespace gputrain::tokenizers {

bool append_byte_tokens(const Vocabulary& vocabulary, std::string_view text, size_t begin, Workspace& workspace) {
  const size_t before = workspace.tokens.size();
  for (const char byte : text) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    const int32_t token = vocabulary.find(name);
    if (token < 0) {
      workspace.shrink(before);
      return false;
    }
    workspace.push(token, begin, begin + 1);
    ++begin;
  }
  return true;
}

std::unique_ptr<const Model> read_model(const JsonPart& part, bool is_byte_level) {
  std::string type = part.text("type", "");
  if (type.empty()) type = part.has("merges") ? "BPE" : part.at("vocab").value().is_array() ? "Unigram" : "WordPiece";
  if (type == "BPE") return read_bpe(part, is_byte_level);
  if (type == "WordLevel") return read_word_level(part);
  if (type == "WordPiece") return read_word_piece(part);
  if (type == "Unigram") return read_unigram(part);
  part.refuse("the model '" + type + "' is not supported", "BPE, WordPiece, WordLevel and Unigram are");
}

}  // namespace gputrain::tokenizers

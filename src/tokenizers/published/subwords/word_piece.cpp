// Takes the longest token that the rest of a word begins with.
// Song and others, "Fast WordPiece Tokenization", 2021, describe it; this is the plain way.
#include "../text/unicode.hpp"
#include "model.hpp"

namespace gputrain::tokenizers {
namespace {

constexpr int64_t kLongestWord = 10'000;  // characters; the work for a word grows with their square

class WordPiece final : public Model {
 public:
  WordPiece(Vocabulary vocabulary, const JsonPart& part)
      : Model(std::move(vocabulary)),
        inner_prefix_(part.text("continuing_subword_prefix", "##")),
        longest_word_(part.has("max_input_chars_per_word") ? part.at("max_input_chars_per_word").whole_number() : 100) {
    if (longest_word_ > kLongestWord)
      part.refuse("'max_input_chars_per_word' is above " + std::to_string(kLongestWord));
    const std::string unknown = part.text("unk_token", "[UNK]");
    unknown_ = this->vocabulary().find(unknown);
    if (unknown_ < 0) part.refuse("the unknown token '" + unknown + "' is not in the vocabulary");
  }

  bool encode(std::string_view word, Workspace& workspace) const override {
    const size_t before = workspace.tokens.size();
    if (!append_pieces(word, workspace)) {
      workspace.shrink(before);
      workspace.push(unknown_, 0, word.size());
    }
    return true;
  }

 private:
  bool append_pieces(std::string_view word, Workspace& workspace) const {
    int64_t characters = 0;
    for (size_t at = 0; at < word.size(); at += code_point_bytes(word[at])) ++characters;
    if (characters > longest_word_) return false;
    std::string text;
    for (size_t begin = 0; begin < word.size();) {
      text = begin > 0 ? inner_prefix_ : "";
      text += word.substr(begin);
      size_t left = word.size() - begin;
      int32_t token = vocabulary().find(text);
      while (token < 0) {
        const size_t end = code_point_before(word, begin + left);
        if (end <= begin) return false;
        text.resize(text.size() - (begin + left - end));
        left = end - begin;
        token = vocabulary().find(text);
      }
      workspace.push(token, begin, begin + left);
      begin += left;
    }
    return true;
  }

  std::string inner_prefix_;
  int64_t longest_word_;  // characters
  int32_t unknown_;
};

}  // namespace

std::unique_ptr<const Model> read_word_piece(const JsonPart& part) {
  return std::make_unique<WordPiece>(read_vocabulary(part.at("vocab")), part);
}

}  // namespace gputrain::tokenizers

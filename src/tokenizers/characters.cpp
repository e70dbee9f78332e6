#include "gputrain/core/error.hpp"
#include "token_buffer.hpp"
#include "utf8.hpp"

namespace gputrain::tokenizers {
namespace {

/// The code points of the training data in ascending order; token i is the i-th of them.
class Characters final : public Tokenizer {
 public:
  Characters(const config::NoOptions&, const TokenizerRequest& request) {
    for (size_t i = 0; i < request.texts.size(); ++i) check_utf8(request.texts[i], request.names[i]);
    const std::vector<bool> present = points_in(request.texts);
    for (size_t point = 0; point < present.size(); ++point) {
      if (!present[point]) continue;
      token_of_.resize(point + 1, -1);
      token_of_[point] = std::ssize(characters_);
      characters_.push_back(static_cast<int64_t>(point));
    }
  }

  int64_t vocabulary_size() const override { return std::ssize(characters_); }

  void tokenize(std::string_view text, const std::string& name, const Take& take,
                std::vector<ByteRange>* ranges) const override {
    TokenBuffer buffer(take, ranges);
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const int64_t point = next_code_point(text, at);
      if (point < 0) check_utf8(text, name);  // throws
      const int64_t token = point < std::ssize(token_of_) ? token_of_[static_cast<size_t>(point)] : -1;
      if (token < 0)
        throw Error(ExitCode::data, {.what = "the character " + name_of(point) + " is not in the training data",
                                     .where = place(name, text, begin),
                                     .hint = "data.text.tokenizer: bytes accepts every text"});
      buffer.push(token, {begin, at});
    }
    buffer.flush();
  }

  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens) {
      const bool is_known = token >= 0 && token < vocabulary_size();
      append_utf8(is_known ? characters_[static_cast<size_t>(token)] : kReplacement, text);
    }
    return text;
  }

 private:
  static std::vector<bool> points_in(std::span<const std::string> texts) {
    std::vector<bool> present(128);
    for (const std::string& text : texts)
      for (size_t at = 0; at < text.size();) {
        const auto point = static_cast<size_t>(next_code_point(text, at));
        if (point >= present.size()) present.resize(point + 1);
        present[point] = true;
      }
    return present;
  }

  std::vector<int64_t> characters_;  // code points, ascending
  std::vector<int64_t> token_of_;    // indexed by code point, up to the highest; -1: no token
};

const config::Registered<Characters, config::NoOptions> registered_characters{
    catalog(), "characters", "one token for each character of the training data"};

}  // namespace
}  // namespace gputrain::tokenizers

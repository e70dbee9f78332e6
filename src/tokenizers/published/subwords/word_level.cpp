// A token for each whole word.
#include "model.hpp"

namespace gputrain::tokenizers {
namespace {

class WordLevel final : public Model {
 public:
  WordLevel(Vocabulary vocabulary, const JsonPart& part) : Model(std::move(vocabulary)) {
    unknown_ = this->vocabulary().find(part.text("unk_token", "<unk>"));
  }

  bool encode(std::string_view word, Workspace& workspace) const override {
    const int32_t known = vocabulary().find(word), token = known < 0 ? unknown_ : known;
    if (token >= 0) workspace.push(token, 0, word.size());
    return token >= 0;
  }

 private:
  int32_t unknown_;  // negative: there is none
};

}  // namespace

std::unique_ptr<const Model> read_word_level(const JsonPart& part) {
  return std::make_unique<WordLevel>(read_vocabulary(part.at("vocab")), part);
}

}  // namespace gputrain::tokenizers

// What trained models give, in words.
#include "gputrain/core/error.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::trained {
namespace {

struct Words {
  TextUse gives;
  const char* of_text;
  const char* of_image;
  const char* verb;
};
constexpr Words kWords[] = {
    {TextUse::next_token, "continues texts", "", "gputrain generate"},
    {TextUse::masked, "guesses hidden tokens", "", "gputrain eval"},
    {TextUse::label, "gives a class of each text", "gives a class of each image", "gputrain predict"},
    {TextUse::labels, "gives classes of each text", "gives classes of each image", "gputrain predict"},
    {TextUse::number, "gives a number for each text", "gives numbers for each image", "gputrain predict"},
    {TextUse::tags, "gives a tag of each word", "", "gputrain predict"},
    {TextUse::pairs, "gives vectors of texts", "", "gputrain embed"},
    {TextUse::rating, "judges answers to prompts", "", "gputrain eval"},
};

const Words& words_of(const data::Signature& signature) {
  for (const Words& words : kWords)
    if (words.gives == signature.gives) return words;
  GPUTRAIN_ASSERT(false, "words for what it gives");
}

}  // namespace

std::string what_it_gives(const data::Signature& signature) {
  if (signature.labels_pixels) return "gives a class of each pixel";
  const Words& words = words_of(signature);
  return signature.reads_texts() ? words.of_text : words.of_image;
}

std::string verb_for(const data::Signature& signature) { return words_of(signature).verb; }

void check_continues_texts(const Source& source, const std::string& user) {
  if (source.continues_texts()) return;
  throw Error(ExitCode::usage, {.what = "this model " + what_it_gives(source.signature) + ", and " + user +
                                        " is for models that continue texts",
                                .where = source.folder.string(),
                                .hint = verb_for(source.signature)});
}

}  // namespace gputrain::trained

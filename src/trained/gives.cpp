// Outputs of trained models, in words.
#include "gputrain/core/error.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::trained {

std::string what_it_gives(const data::Signature& signature) { return "gives " + std::string(signature.gives.gives()); }

std::string verb_for(const data::Signature& signature) {
  const Target& gives = signature.gives;
  if (gives == Target::next_token) return "gputrain generate";
  if (gives == Target::pairs) return "gputrain embed";
  const bool is_for_evaluation = gives == Target::masked || gives == Target::preference || gives == Target::rating;
  return is_for_evaluation ? "gputrain eval" : "gputrain predict";
}

void check_continues_texts(const Source& source, const std::string& user) {
  if (source.continues_texts()) return;
  throw Error(ExitCode::usage, {.what = "this model " + what_it_gives(source.signature) + ", and " + user +
                                        " is for models that continue texts",
                                .where = source.folder.string(),
                                .hint = verb_for(source.signature)});
}

}  // namespace gputrain::trained

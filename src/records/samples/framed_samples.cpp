#include "framed_samples.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "../tokens/encoded_texts.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::records {

void FramedSamples::follow(const data::SampleLayout& train) { has_more_ = train.find(kTokenTypes) != nullptr; }

void FramedSamples::settle(std::vector<Draft>& drafts, const std::vector<std::string>* known) {
  if (known == nullptr)
    has_more_ = std::ranges::any_of(drafts, [](const Draft& draft) { return draft.texts.size() > 1; });
}

std::vector<EncodedSample> FramedSamples::encoded(Draft& draft, int64_t most) const {
  std::optional<std::vector<int64_t>> pair;
  if (draft.texts.size() > 1) pair = tokenizer().encode(draft.texts[1].text, draft.place);
  std::vector<int64_t> tokens = tokenizer().encode(draft.texts.at(0).text, draft.place);
  if (tokens.empty() && (!pair || pair->empty())) throw Error(ExitCode::data, {.what = "the text is empty"});
  return {encoded_sample(framed(tokenizer(), std::move(tokens), std::move(pair), most))};
}

data::SampleLayout FramedSamples::layout_of_tokens(const MadeSamples& made) const {
  data::SampleLayout layout{.fields = {{.name = kTokens, .sizes = {made.longest}, .ragged = true}}};
  if (made.has_more && tokenizer().frame(true).second_type != 0)
    layout.fields.push_back({.name = kTokenTypes, .sizes = {made.longest}, .ragged = true});
  return layout;
}

}  // namespace gputrain::records

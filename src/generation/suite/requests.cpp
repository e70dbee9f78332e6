#include "requests.hpp"

#include <algorithm>
#include <string_view>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "whitespace.hpp"

namespace gputrain::generation {
namespace {

using Tokens = std::vector<int64_t>;

std::string spelling_of(const SuiteModel& model) {
  if (!model.first_token) return {};
  const Tokens first{*model.first_token};
  return model.tokenizer.decode(first);
}

Tokens joined(Tokens tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

/// Cuts tokens at the front.
void keep_last(Tokens& tokens, int64_t count) {
  if (std::ssize(tokens) > count) tokens.erase(tokens.begin(), tokens.end() - count);
}

}  // namespace

SuiteEncoder::SuiteEncoder(const SuiteModel& model) : model_(model), first_spelled_(spelling_of(model)) {}

Tokens SuiteEncoder::encode(const std::string& text, bool is_begin, const std::string& place) const {
  const bool has_first = !first_spelled_.empty() && text.starts_with(first_spelled_);
  const bool adds = is_begin && model_.adds_special_tokens && !has_first;
  Tokens tokens = adds ? model_.tokenizer.encode_whole(text, place) : model_.tokenizer.encode(text, place);
  for (const int64_t token : tokens) {
    if (token < model_.limits.vocabulary) continue;
    throw Error(ExitCode::data,
                {.what = "the text has token " + grouped(token) + ", but the model knows " +
                         counted(model_.limits.vocabulary, "token") + ": the tokenizer belongs to another model",
                 .where = place});
  }
  return tokens;
}

int64_t SuiteEncoder::first_token(const std::string& place) const {
  if (model_.first_token) return *model_.first_token;
  throw Error(ExitCode::data, {.what = "the tokenizer has no token that begins or ends a text, so the first token of "
                                       "this one cannot be scored",
                               .where = place,
                               .hint = "ask for choices after a context"});
}

ScoredText SuiteEncoder::after(const std::string& context, const std::string& continuation,
                               const std::string& place) const {
  Tokens before, scored;
  if (const std::string head(without_trailing_space(context)); !head.empty()) {
    const Tokens whole = encode(context + continuation, true, place);
    before = encode(head, true, place);
    scored.assign(whole.begin() + std::min(std::ssize(before), std::ssize(whole)), whole.end());
    // One token may span the end of the context and all of the choice.
    if (scored.empty()) scored = encode(context.substr(head.size()) + continuation, false, place);
  } else {
    scored = encode(context + continuation, false, place);
    before.push_back(first_token(place));
    if (!scored.empty() && scored[0] == before[0]) scored.erase(scored.begin());
  }
  if (scored.empty()) {
    throw Error(ExitCode::data, {.what = "a choice has no token of its own after the context", .where = place});
  }
  if (std::ssize(scored) > model_.limits.length) {
    throw Error(ExitCode::data, {.what = "a choice has " + counted(std::ssize(scored), "token") +
                                         ", but the model reads " + counted(model_.limits.length, "token"),
                                 .where = place});
  }
  const int64_t count = std::ssize(scored);
  Tokens tokens = joined(std::move(before), scored);
  keep_last(tokens, model_.limits.length + 1);  // the last one is not read
  return {.tokens = std::move(tokens), .scored = count};
}

std::vector<ScoredText> SuiteEncoder::windows(const std::string& text, const std::string& place) const {
  const Tokens tokens = encode(text, true, place);
  if (tokens.empty()) throw Error(ExitCode::data, {.what = "the text has no token", .where = place});
  const Tokens whole = joined({first_token(place)}, tokens);
  std::vector<ScoredText> windows;
  for (int64_t begin = 0; begin < std::ssize(tokens); begin += model_.limits.length) {
    const int64_t end = std::min(begin + model_.limits.length, std::ssize(tokens));
    const int64_t seen = std::max<int64_t>(0, end - model_.limits.length);
    windows.push_back({.tokens = {whole.begin() + seen, whole.begin() + end + 1}, .scored = end - begin});
  }
  return windows;
}

Tokens SuiteEncoder::prompt(const std::string& text, int64_t new_tokens, const std::string& place) const {
  const int64_t room = model_.limits.length - new_tokens;
  if (room < 1) {
    throw Error(ExitCode::data,
                {.what = counted(new_tokens, "new token") + " leave no room for the prompt: the model reads " +
                         counted(model_.limits.length, "token"),
                 .where = place,
                 .hint = "a smaller \"max_new_tokens\""});
  }
  Tokens tokens = encode(text, true, place);
  if (tokens.empty()) throw Error(ExitCode::data, {.what = "the prompt has no token", .where = place});
  keep_last(tokens, room);
  return tokens;
}

}  // namespace gputrain::generation

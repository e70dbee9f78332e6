#include "vocabulary.hpp"

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::tokenizers {
namespace {

std::string shown(std::string_view text) {
  return nlohmann::json(shortened(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void Vocabulary::add(std::string_view text, int64_t token) {
  const auto refuse = [&](const std::string& why) {
    throw Error(
        ExitCode::data,
        {.what = "token " + shown(text) + " has the number " + std::to_string(token) + ", " + why, .where = where_});
  };
  if (text.size() > kLongestToken)
    throw Error(ExitCode::data,
                {.what = "token " + std::to_string(token) + " has " + counted(std::ssize(text), "byte") +
                         "; texts of tokens have at most " + grouped(kLongestToken),
                 .where = where_,
                 .hint = "take that token out of the file, or download the file again"});
  if (token < 0 || token >= kMostTokens) refuse("but numbers are from 0 to " + std::to_string(kMostTokens - 1));
  if (token >= size()) texts_.resize(static_cast<size_t>(token) + 1, nullptr);
  const std::string*& place = texts_[static_cast<size_t>(token)];
  if (place != nullptr) refuse("as " + shown(*place) + " has");
  const auto [entry, is_new] = numbers_.try_emplace(std::string(text), static_cast<int32_t>(token));
  if (!is_new) refuse("but also " + std::to_string(entry->second));
  place = &entry->first;
}

Vocabulary read_vocabulary(const JsonPart& part) {
  Vocabulary vocabulary(part.file());
  if (!part.value().is_object()) part.refuse("expected an object");
  for (const auto& [text, token] : part.value().items()) {
    if (!token.is_number_integer()) part.refuse("token " + shown(text) + " has no whole number");
    vocabulary.add(text,
                   token.is_number_unsigned() && token.get<uint64_t>() >> 62 != 0 ? kMostTokens : token.get<int64_t>());
  }
  return vocabulary;
}

}  // namespace gputrain::tokenizers

#include "encoded_texts.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/data/options.hpp"
#include "gputrain/data/signature.hpp"

namespace gputrain::records {
namespace {

/// Cuts the longer text, or both, until they have `room` tokens. If `room` is odd, the longer one keeps one more, or
/// the second of two that are equally long.
void cut_longest_first(std::vector<int64_t>& first, std::vector<int64_t>& second, size_t room) {
  if (first.size() + second.size() <= room) return;
  const bool is_second_longer = first.size() <= second.size();
  std::vector<int64_t>&shorter = is_second_longer ? first : second, &longer = is_second_longer ? second : first;
  shorter.resize(std::min(shorter.size(), room / 2));
  longer.resize(room - shorter.size());
}

}  // namespace

FramedTexts framed(const tokenizers::Tokenizer& tokenizer, std::vector<int64_t> first,
                   std::optional<std::vector<int64_t>> second, int64_t most) {
  const tokenizers::Frame frame = tokenizer.frame(second.has_value());
  const size_t around = frame.before.size() + frame.between.size() + frame.behind.size();
  std::vector<int64_t> behind = second ? std::move(*second) : std::vector<int64_t>();
  FramedTexts texts;
  texts.full_size = static_cast<int64_t>(first.size() + behind.size() + around);
  const auto limit = static_cast<size_t>(most);
  cut_longest_first(first, behind, limit > around ? limit - around : 0);
  const auto add = [&texts](const std::vector<int64_t>& tokens) {
    for (const int64_t token : tokens) texts.tokens.push_back(static_cast<int32_t>(token));
  };
  add(frame.before);
  add(first);
  add(frame.between);
  const bool has_second_type = second.has_value() && frame.second_type != 0;
  const size_t border = texts.tokens.size();
  add(behind);
  add(frame.behind);
  if (texts.tokens.size() > limit) texts.tokens.resize(limit);  // for a frame that alone is longer
  texts.second = has_second_type ? std::min(border, texts.tokens.size()) : texts.tokens.size();
  return texts;
}

void EncodedWords::add(const std::string& word, const tokenizers::Tokenizer& tokenizer, const std::string& place) {
  const std::vector<int64_t> more = tokenizer.encode(" " + word, place);
  begins.push_back(more.empty() ? -1 : std::ssize(tokens));
  tokens.insert(tokens.end(), more.begin(), more.end());
}

bool is_tokenizer_built_from_texts(const data::DatasetRequest& request) {
  const std::string name = request.text != nullptr ? request.text->tokenizer.name : data::TextOptions().tokenizer.name;
  return name == "characters" || name == "words";
}

std::shared_ptr<const tokenizers::Tokenizer> tokenizer_for(const data::DatasetRequest& request,
                                                           std::span<const std::string> texts,
                                                           std::span<const std::string> names) {
  if (request.train != nullptr && request.train->tokenizer) return request.train->tokenizer;
  config::Choice choice = request.text != nullptr ? request.text->tokenizer : data::TextOptions().tokenizer;
  const auto& catalog = tokenizers::catalog();
  if (!choice.options) choice = catalog.with_defaults(choice.name);
  const std::vector<std::string> same(names.empty() ? texts.size() : 0, request.path);
  return catalog.make(
      choice, {.texts = texts, .names = names.empty() ? std::span(same) : names, .pretrained = request.pretrained});
}

}  // namespace gputrain::records

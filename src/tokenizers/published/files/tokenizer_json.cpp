#include "tokenizer_json.hpp"

#include <algorithm>

namespace gputrain::tokenizers {
namespace {

std::vector<AddedToken> read_added_tokens(const JsonPart& root, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (!root.has("added_tokens")) return tokens;
  Vocabulary seen(root.file() + ": added_tokens");  // refuses what is there twice
  for (const JsonPart& part : root.at("added_tokens").list()) {
    const std::string text = part.at("content").text();
    const int64_t token = part.at("id").whole_number();
    seen.add(text, token);
    const int32_t in_model = vocabulary.find(text);
    if (in_model >= 0 && in_model != token)
      part.refuse("'" + text + "' has the number " + std::to_string(token) + ", but " + std::to_string(in_model) +
                  " in the model's vocabulary");
    if (in_model < 0 && vocabulary.text(token) != nullptr)
      part.refuse("'" + text + "' has the number of '" + *vocabulary.text(token) + "' in the model's vocabulary");
    tokens.push_back({.text = text,
                      .token = static_cast<int32_t>(token),
                      .is_single_word = part.flag("single_word", false),
                      .takes_space_before = part.flag("lstrip", false),
                      .takes_space_behind = part.flag("rstrip", false),
                      .is_normalized = part.flag("normalized", true),
                      .is_special = part.flag("special", false)});
  }
  // If two tokens look alike after normalisation, the special one is found.
  std::stable_partition(tokens.begin(), tokens.end(), [](const AddedToken& token) { return token.is_special; });
  return tokens;
}

/// Throws Error(data) if a token around texts does not exist.
void check_frames(const JsonPart& root, const PublishedTokenizer::Parts& parts) {
  const auto& [one, two] = parts.frames;
  for (const auto* tokens : {&one.before, &one.behind, &two.before, &two.between, &two.behind})
    for (const int64_t token : *tokens) {
      const bool is_added =
          std::ranges::any_of(parts.added, [&](const AddedToken& added) { return added.token == token; });
      if (!is_added && parts.model->vocabulary().text(token) == nullptr)
        root.at("post_processor").refuse("there is no token " + std::to_string(token));
    }
}

}  // namespace

PublishedTokenizer::Parts read_tokenizer_json(const JsonPart& root) {
  PublishedTokenizer::Parts parts;
  if (root.has("pre_tokenizer")) parts.pre_tokenizers = read_pre_tokenizer(root.at("pre_tokenizer"));
  parts.model = read_model(root.at("model"), parts.pre_tokenizers.ends_with_alphabet);
  parts.added = read_added_tokens(root, parts.model->vocabulary());
  if (root.has("normalizer")) parts.normalizer = read_normalizer(root.at("normalizer"));
  if (root.has("decoder")) parts.decoder = read_decoder(root.at("decoder"));
  if (root.has("post_processor")) parts.frames = read_post_processor(root.at("post_processor"));
  check_frames(root, parts);
  return parts;  // "truncation" and "padding" are of a program that ran once, not of the model
}

}  // namespace gputrain::tokenizers

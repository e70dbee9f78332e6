#include "gputrain/tokenizers/tokenizer.hpp"

#include <nlohmann/json.hpp>

namespace gputrain::tokenizers {

TokenizerCatalog& catalog() {
  static TokenizerCatalog tokenizers("tokenizer");
  return tokenizers;
}

Tokenizer::~Tokenizer() = default;

std::vector<int64_t> Tokenizer::encode(std::string_view text, const std::string& name) const {
  std::vector<int64_t> all;
  encode(text, name, [&](std::span<const int64_t> tokens) { all.insert(all.end(), tokens.begin(), tokens.end()); });
  return all;
}

TracedTokens Tokenizer::encode_traced(std::string_view text, const std::string& name) const {
  TracedTokens all;
  const Take take = [&](std::span<const int64_t> tokens) {
    all.tokens.insert(all.tokens.end(), tokens.begin(), tokens.end());
  };
  tokenize(text, name, take, &all.ranges);
  return all;
}

Frame Tokenizer::frame(bool) const { return {}; }

std::vector<int64_t> Tokenizer::encode_whole(std::string_view text, const std::string& name) const {
  const Frame around = frame(false);
  std::vector<int64_t> all = around.before;
  encode(text, name, [&](std::span<const int64_t> tokens) { all.insert(all.end(), tokens.begin(), tokens.end()); });
  all.insert(all.end(), around.behind.begin(), around.behind.end());
  return all;
}

std::vector<std::string> Tokenizer::token_texts() const {
  std::vector<std::string> texts;
  for (int64_t token = 0; token < vocabulary_size(); ++token) texts.push_back(decode({&token, 1}));
  return texts;
}

void Tokenizer::save(std::map<std::string, std::string>& metadata) const {
  using nlohmann::json;  // a single byte may be invalid UTF-8; dump() replaces it
  metadata[kTargets] = json(token_texts()).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace gputrain::tokenizers

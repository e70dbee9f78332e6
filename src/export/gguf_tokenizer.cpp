#include "gguf_tokenizer.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/generation/end_tokens.hpp"
#include "gputrain/tokenizers/published.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Values = std::vector<std::pair<std::string, GgufValue>>;

// Kinds of tokens by their number in a file.
enum TokenKind : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

[[noreturn]] void refuse(const std::string& what, const fs::path& file) {
  throw Error(ExitCode::usage, {.what = what + ": GGUF's readers do not know such a tokenizer",
                                .where = file.string(),
                                .hint = "--format hf writes a folder that keeps it"});
}

/// Returns a text; null counts as absent.
std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool flag_at(const json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

json read_json(const fs::path& path) { return parse_json_file(path); }

/// Lists the parts of a pre-tokenizer, each as its type with its pattern.
std::vector<std::string> parts_of(const json& part) {
  if (!part.is_object()) return {};
  std::vector<std::string> all;
  if (const auto list = part.find("pretokenizers"); list != part.end() && list->is_array()) {
    for (const json& each : *list)
      for (std::string& one : parts_of(each)) all.push_back(std::move(one));
    return all;
  }
  std::string text = text_at(part, "type");
  if (const auto pattern = part.find("pattern"); pattern != part.end() && pattern->is_object())
    text += text_at(*pattern, "Regex");
  if (text == "ByteLevel" && flag_at(part, "use_regex", true)) text = "GPT-2";
  if (text == "Digits" && !flag_at(part, "individual_digits", false)) text = "Numbers";
  return {text};
}

/// Returns llama.cpp's name for the way to split text.
std::string cutting_of(const json& tokenizer) {
  static const std::string kWords = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)",
                           kRest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::map<std::vector<std::string>, std::string> kKnown{
      {{"GPT-2"}, "gpt-2"},
      {{"Split" + kWords + R"(\p{N}{1,3})" + kRest, "ByteLevel"}, "llama-bpe"},
      {{"Split" + kWords + R"(\p{N})" + kRest, "ByteLevel"}, "qwen2"},
      {{"Digits", "GPT-2"}, "smollm"}};
  const auto parts = tokenizer.find("pre_tokenizer");
  const auto found = parts == tokenizer.end() ? kKnown.end() : kKnown.find(parts_of(*parts));
  if (found != kKnown.end()) return found->second;
  log::warning("the way this tokenizer cuts text has no name in GGUF that is known here: readers may cut it otherwise");
  return "default";
}

/// Returns whether a text gets a space before its first word.
bool adds_space(const json& part) {
  if (part.is_array()) return std::ranges::any_of(part, adds_space);
  if (!part.is_object()) return false;
  const std::string type = text_at(part, "type");
  if (type == "Prepend") return true;
  if (type == "Metaspace")
    return part.contains("prepend_scheme") ? text_at(part, "prepend_scheme") != "never"
                                           : flag_at(part, "add_prefix_space", true);
  return adds_space(part.value("normalizers", json())) || adds_space(part.value("pretokenizers", json()));
}

/// Returns "a b" for a merge, which may be a pair.
std::string merge_text(const json& merge) {
  if (merge.is_string()) return merge.get<std::string>();
  return merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>();
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;

  explicit Tokens(int64_t count) : kinds(static_cast<size_t>(count), kUnused) {
    for (int64_t i = 0; i < count; ++i) texts.push_back("[PAD" + std::to_string(i) + "]");
  }
  void set(int64_t token, const std::string& text, TokenKind kind, const fs::path& file) {
    if (token < 0 || token >= static_cast<int64_t>(texts.size()))
      throw Error(ExitCode::data, {.what = "token " + std::to_string(token) + " is outside the model's vocabulary of " +
                                           std::to_string(texts.size()),
                                   .where = file.string()});
    texts[static_cast<size_t>(token)] = text;
    kinds[static_cast<size_t>(token)] = kind;
  }
};

Tokens tokens_of(const json& tokenizer, int64_t vocabulary, bool has_bytes, const fs::path& file) {
  Tokens tokens(vocabulary);
  const json& model = tokenizer.at("model");
  const std::string unknown = text_at(model, "unk_token");
  for (const auto& [text, token] : model.at("vocab").items()) {
    const bool is_byte = has_bytes && text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
    tokens.set(token.get<int64_t>(), text, is_byte ? kByte : text == unknown && has_bytes ? kUnknown : kNormal, file);
  }
  for (const json& added : tokenizer.value("added_tokens", json::array())) {
    const auto id = added.at("id").get<int64_t>();
    const bool is_unknown = has_bytes && added.at("content") == unknown;
    tokens.set(id, added.at("content").get<std::string>(),
               is_unknown                         ? kUnknown
               : flag_at(added, "special", false) ? kControl
                                                  : kUserDefined,
               file);
  }
  return tokens;
}

/// Returns scores by merge: SentencePiece joins the pair with the highest score first, here the earliest merge.
std::vector<float> scores_of(const json& model, const std::vector<std::string>& texts) {
  std::map<std::string, float> by_text;
  float rank = 0;
  for (const json& merge : model.at("merges")) {
    std::string joined = merge_text(merge);
    joined.erase(joined.find(' '), 1);
    by_text.emplace(joined, -(rank++));
  }
  std::vector<float> scores;
  for (const std::string& text : texts) {
    const auto found = by_text.find(text);
    scores.push_back(found == by_text.end() ? -rank : found->second);
  }
  return scores;
}

void add_special(Values& values, const fs::path& folder, const Tokens& tokens) {
  const auto number_of = [&](const std::string& text) -> std::optional<uint32_t> {
    const auto found = std::ranges::find(tokens.texts, text);
    if (found == tokens.texts.end()) return std::nullopt;
    return static_cast<uint32_t>(found - tokens.texts.begin());
  };
  const auto special = chat::read_special_tokens(folder);
  for (const auto& [key, name] : {std::pair("bos_token", "bos"), std::pair("eos_token", "eos"),
                                  std::pair("unk_token", "unknown"), std::pair("pad_token", "padding")}) {
    if (!special.contains(key)) continue;
    if (const auto token = number_of(special.at(key).get<std::string>()))
      values.emplace_back(std::string("tokenizer.ggml.") + name + "_token_id", *token);
  }
  const json config = read_json(folder / "tokenizer_config.json");
  for (const char* key : {"add_bos_token", "add_eos_token"}) {
    if (config.is_object() && config.value(key, json()).is_boolean())
      values.emplace_back(std::string("tokenizer.ggml.") + key, config[key].get<bool>());
  }
}

/// Adds the tokens that end a text and a turn; readers know one of each.
void add_ends(Values& values, const trained::Model& model) {
  constexpr const char* kEndOfText = "tokenizer.ggml.eos_token_id";
  const auto number = [](int64_t token) { return GgufValue(static_cast<uint32_t>(token)); };
  const bool has_end = std::ranges::any_of(values, [&](const auto& value) { return value.first == kEndOfText; });
  if (!has_end && !model.files.end_tokens.empty())
    values.emplace_back(kEndOfText, number(model.files.end_tokens.front()));
  if (!model.files.chat_template) return;
  if (const auto end = generation::end_of_turn(*model.files.chat_template, *model.published))
    values.emplace_back("tokenizer.ggml.eot_token_id", number(*end));
}

Values values_of(const json& tokenizer, const fs::path& folder, int64_t vocabulary) {
  const json& model = tokenizer.at("model");
  const std::string type = text_at(model, "type");
  if ((!type.empty() && type != "BPE") || !model.contains("merges"))
    refuse("the tokenizer is " + (type.empty() ? "of another kind" : type) + ", not BPE", folder);
  const bool has_bytes = flag_at(model, "byte_fallback", false);
  const Tokens tokens = tokens_of(tokenizer, vocabulary, has_bytes, folder);
  Values values{{"tokenizer.ggml.model", std::string(has_bytes ? "llama" : "gpt2")}};
  values.emplace_back("tokenizer.ggml.pre", has_bytes ? std::string("default") : cutting_of(tokenizer));
  values.emplace_back("tokenizer.ggml.tokens", tokens.texts);
  values.emplace_back("tokenizer.ggml.token_type", tokens.kinds);
  if (has_bytes) {
    values.emplace_back("tokenizer.ggml.scores", scores_of(model, tokens.texts));
    values.emplace_back("tokenizer.ggml.add_space_prefix", adds_space(tokenizer.value("normalizer", json())) ||
                                                               adds_space(tokenizer.value("pre_tokenizer", json())));
  } else {
    std::vector<std::string> merges;
    for (const json& merge : model.at("merges")) merges.push_back(merge_text(merge));
    values.emplace_back("tokenizer.ggml.merges", std::move(merges));
  }
  add_special(values, folder, tokens);
  return values;
}

/// Takes over kinds and scores: GGUF uses SentencePiece's numbers.
Values values_of(const tokenizers::SentencePieces& pieces, const fs::path& folder, int64_t vocabulary) {
  Tokens tokens(vocabulary);
  std::vector<float> scores = pieces.scores;
  scores.resize(static_cast<size_t>(vocabulary));
  for (size_t i = 0; i < pieces.texts.size(); ++i)
    tokens.set(static_cast<int64_t>(i), pieces.texts[i], static_cast<TokenKind>(pieces.kinds[i]), folder);
  Values values{
      {"tokenizer.ggml.model", std::string("llama")}, {"tokenizer.ggml.pre", std::string("default")},
      {"tokenizer.ggml.tokens", tokens.texts},        {"tokenizer.ggml.token_type", tokens.kinds},
      {"tokenizer.ggml.scores", std::move(scores)},   {"tokenizer.ggml.add_space_prefix", pieces.prepends_space}};
  add_special(values, folder, tokens);
  return values;
}

tokenizers::SentencePieces sentence_pieces_in(const fs::path& folder) {
  auto pieces = tokenizers::sentence_pieces_of(folder);
  if (!pieces || !pieces->are_of_bpe) refuse("the tokenizer is no BPE model", folder);
  return std::move(*pieces);
}

}  // namespace

Values gguf_tokenizer(const trained::Model& model) {
  const fs::path& folder = model.tokenizer_folder;
  const json tokenizer = tokenizers::tokenizer_json_of(folder);
  try {
    Values values = tokenizer.is_null() ? values_of(sentence_pieces_in(folder), folder, model.vocabulary)
                                        : values_of(tokenizer, folder, model.vocabulary);
    add_ends(values, model);
    return values;
  } catch (const json::exception& error) {
    throw Error(ExitCode::data,
                {.what = "not as a tokenizer should be: " + reason_in(error), .where = folder.string()});
  }
}

}  // namespace gputrain::app

#include "gguf_tokenizer.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/generation/end_tokens.hpp"

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

json read_json(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, /*allow_exceptions=*/false);
}

/// All patterns by which the pre-tokenizer cuts text, joined.
std::string patterns_of(const json& part) {
  if (!part.is_object()) return {};
  std::string all;
  if (part.value("type", "") == "ByteLevel" && part.value("use_regex", true)) all = "ByteLevel";
  if (const auto list = part.find("pretokenizers"); list != part.end())
    for (const json& each : *list) all += patterns_of(each);
  if (const auto pattern = part.find("pattern"); pattern != part.end() && pattern->is_object())
    all += pattern->value("Regex", pattern->value("String", ""));
  return all;
}

/// The name by which llama.cpp knows how text is cut.
std::string cutting_of(const json& tokenizer) {
  const std::string patterns = patterns_of(tokenizer.value("pre_tokenizer", json()));
  const auto has = [&](const char* part) { return patterns.find(part) != std::string::npos; };
  if (patterns == "ByteLevel") return "gpt-2";
  if (has("[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"))
    return has("(?i:'s") ? "gpt-4o" : "tekken";
  if (has("(?i:'s|'t|'re|'ve|'m|'ll|'d)") && has("\\p{N}{1,3}")) return "llama-bpe";
  if (has("(?i:'s|'t|'re|'ve|'m|'ll|'d)") && has("\\p{N}")) return "qwen2";
  log::warning("the way this tokenizer cuts text has no name in GGUF: readers cut it as GPT-2 does");
  return "default";
}

/// "a b", or a pair.
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
  const std::string unknown = model.value("unk_token", json()).is_string() ? model["unk_token"].get<std::string>() : "";
  for (const auto& [text, token] : model.at("vocab").items()) {
    const bool is_byte = has_bytes && text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
    tokens.set(token.get<int64_t>(), text, is_byte ? kByte : text == unknown && has_bytes ? kUnknown : kNormal, file);
  }
  for (const json& added : tokenizer.value("added_tokens", json::array())) {
    const auto id = added.at("id").get<int64_t>();
    const bool is_unknown = has_bytes && added.at("content") == unknown;
    tokens.set(id, added.at("content").get<std::string>(),
               is_unknown                      ? kUnknown
               : added.value("special", false) ? kControl
                                               : kUserDefined,
               file);
  }
  return tokens;
}

/// SentencePiece joins the pair with the highest score first: here, the earliest merge.
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

void add_chat_template(Values& values, const fs::path& folder) {
  const fs::path file = folder / "chat_template.jinja";
  if (fs::exists(file)) {
    std::ifstream stream(file);
    values.emplace_back("tokenizer.chat_template", std::string{std::istreambuf_iterator<char>(stream), {}});
    return;
  }
  const json config = read_json(folder / "tokenizer_config.json");
  if (config.is_object() && config.value("chat_template", json()).is_string())
    values.emplace_back("tokenizer.chat_template", config["chat_template"].get<std::string>());
}

}  // namespace

Values gguf_tokenizer(const fs::path& folder, int64_t vocabulary) {
  const fs::path file = folder / "tokenizer.json";
  const json tokenizer = read_json(file);
  if (!tokenizer.is_object() || !tokenizer.contains("model")) refuse("there is no tokenizer.json", folder);
  const json& model = tokenizer["model"];
  if (model.value("type", "BPE") != "BPE") refuse("the tokenizer is " + model.value("type", "") + ", not BPE", file);
  const bool has_bytes = model.value("byte_fallback", false);
  const Tokens tokens = tokens_of(tokenizer, vocabulary, has_bytes, file);
  Values values{{"tokenizer.ggml.model", std::string(has_bytes ? "llama" : "gpt2")}};
  values.emplace_back("tokenizer.ggml.pre", has_bytes ? std::string("default") : cutting_of(tokenizer));
  values.emplace_back("tokenizer.ggml.tokens", tokens.texts);
  values.emplace_back("tokenizer.ggml.token_type", tokens.kinds);
  if (has_bytes) {
    values.emplace_back("tokenizer.ggml.scores", scores_of(model, tokens.texts));
  } else {
    std::vector<std::string> merges;
    for (const json& merge : model.at("merges")) merges.push_back(merge_text(merge));
    values.emplace_back("tokenizer.ggml.merges", std::move(merges));
  }
  add_special(values, folder, tokens);
  add_chat_template(values, folder);
  return values;
}

}  // namespace gputrain::app

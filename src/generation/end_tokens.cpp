#include "gputrain/generation/end_tokens.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"

namespace gputrain::generation {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Returns the numbers that a file has under a key such as `eos_token_id`; empty: there is no file or no such key.
std::vector<int64_t> numbers_in(const fs::path& path, const std::string& key) {
  const json content = parse_json_file(path);
  if (!content.is_object()) return {};
  const auto found = content.find(key);
  if (found == content.end() || found->is_null()) return {};
  const json list = found->is_array() ? *found : json::array({*found});
  std::vector<int64_t> numbers;
  for (const json& each : list) {
    if (!each.is_number_integer()) {
      throw Error(ExitCode::data, {.what = "'" + key + "' is " + found->dump().substr(0, 40) +
                                           ", expected a whole number or a list of them",
                                   .where = path.string()});
    }
    numbers.push_back(each.get<int64_t>());
  }
  return numbers;
}

}  // namespace

std::vector<int64_t> token_numbers(const fs::path& folder, const char* key) {
  const auto numbers = numbers_in(folder / "generation_config.json", key);
  return numbers.empty() ? numbers_in(folder / "config.json", key) : numbers;
}

std::optional<int64_t> end_of_turn(const chat::ChatTemplate& chat_template, const tokenizers::Tokenizer& tokenizer) {
  const std::string answer = "ANSWER";
  const auto message = [](const char* role, const std::string& content) {
    return nlohmann::ordered_json{{"role", role}, {"content", content}};
  };
  nlohmann::ordered_json messages{message("user", "QUESTION"), message("assistant", answer)};
  // In some templates nothing ends a turn but the next one.
  for (int turns = 2; turns <= 3; ++turns, messages.push_back(message("user", "QUESTION"))) {
    try {
      const std::string text =
          chat_template.render(messages, /*add_generation_prompt=*/false, nlohmann::ordered_json::object()).text;
      const size_t at = text.rfind(answer);
      if (at == std::string::npos) return std::nullopt;
      for (const int64_t token : tokenizer.encode(text.substr(at + answer.size()), "the chat template"))
        if (tokenizer.is_special(token)) return token;
    } catch (const Error&) {  // a template may refuse such a conversation
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::vector<int64_t> end_tokens_of(const fs::path& folder, const tokenizers::Tokenizer* tokenizer,
                                   const chat::ChatTemplate* chat_template) {
  std::vector<int64_t> tokens;
  if (!folder.empty()) tokens = token_numbers(folder, "eos_token_id");
  const auto add = [&](std::optional<int64_t> token) {
    if (token) tokens.push_back(*token);
  };
  if (tokenizer != nullptr) {
    add(tokenizer->end_token());
    if (chat_template != nullptr) add(end_of_turn(*chat_template, *tokenizer));
  }
  std::ranges::sort(tokens);
  tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
  return tokens;
}

std::optional<int64_t> first_token_of(const fs::path& folder, const tokenizers::PublishedTokenizer& tokenizer) {
  for (const auto& spelling : {tokenizers::begin_token_beside(folder), tokenizers::end_token_beside(folder)}) {
    if (spelling.empty()) continue;
    if (const auto token = tokenizer.find(spelling)) return token;
  }
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    if (const auto numbers = token_numbers(folder, key); !numbers.empty()) return numbers[0];
  }
  return std::nullopt;
}

}  // namespace gputrain::generation

#include "gputrain/generation/end_tokens.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"

namespace gputrain::generation {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// What a file has under a key such as `eos_token_id`; empty: there is no file, or it names none.
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

std::vector<int64_t> numbers_beside(const fs::path& folder, const std::string& key) {
  const auto numbers = numbers_in(folder / "generation_config.json", key);
  return numbers.empty() ? numbers_in(folder / "config.json", key) : numbers;
}

}  // namespace

std::vector<int64_t> end_tokens_of(const fs::path& folder, const tokenizers::PublishedTokenizer* tokenizer) {
  std::vector<int64_t> tokens = numbers_beside(folder, "eos_token_id");
  if (tokenizer != nullptr) {
    const auto spelled = tokenizer->find(tokenizers::end_token_beside(folder));
    if (spelled) tokens.push_back(*spelled);
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
    if (const auto numbers = numbers_beside(folder, key); !numbers.empty()) return numbers[0];
  }
  return std::nullopt;
}

}  // namespace gputrain::generation

#include "gputrain/generation/end_tokens.hpp"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"

namespace gputrain::generation {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// `eos_token_id` of a file; empty: there is no file, or it names none.
std::vector<int64_t> numbers_in(const fs::path& path) {
  std::ifstream file(path);
  const json content = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!content.is_object()) return {};
  const auto found = content.find("eos_token_id");
  if (found == content.end() || found->is_null()) return {};
  const json list = found->is_array() ? *found : json::array({*found});
  std::vector<int64_t> numbers;
  for (const json& each : list) {
    if (!each.is_number_integer()) {
      throw Error(ExitCode::data, {.what = "'eos_token_id' is " + found->dump().substr(0, 40) +
                                           ", expected a whole number or a list of them",
                                   .where = path.string()});
    }
    numbers.push_back(each.get<int64_t>());
  }
  return numbers;
}

}  // namespace

std::vector<int64_t> end_tokens_of(const fs::path& folder, const tokenizers::PublishedTokenizer* tokenizer) {
  std::vector<int64_t> tokens = numbers_in(folder / "generation_config.json");
  if (tokens.empty()) tokens = numbers_in(folder / "config.json");
  if (tokenizer != nullptr) {
    const auto spelled = tokenizer->find(tokenizers::end_token_beside(folder));
    if (spelled) tokens.push_back(*spelled);
  }
  std::ranges::sort(tokens);
  tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
  return tokens;
}

}  // namespace gputrain::generation

#include "chosen_files.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"

namespace gputrain::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char *kWeights = "model.safetensors", *kIndex = "model.safetensors.index.json";

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

bool describes(const std::string& name) {
  static const std::set<std::string> kEndings{".json", ".txt", ".model", ".jinja", ".tiktoken"};
  if (!is_plain_name(name) || !kEndings.contains(fs::path(name).extension())) return false;
  return !name.ends_with(".index.json") || name.ends_with(".safetensors.index.json");
}

std::vector<std::string> files_in_index(const fs::path& index, const std::vector<std::string>& names) {
  const auto content = parse_json_file(index);
  const auto map = content.is_object() ? content.find("weight_map") : content.end();
  if (map == content.end() || !map->is_object())
    throw Error(ExitCode::data, {.what = "'weight_map' is missing", .where = index.string()});
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (!is_plain_name(name) || !has(names, name)) {
      throw Error(ExitCode::data, {.what = "it names a file of weights that the repository does not have: " + name,
                                   .where = index.string()});
    }
    shards.insert(name);
  }
  return {shards.begin(), shards.end()};
}

}  // namespace

bool is_plain_name(const std::string& name) {
  const auto is_odd = [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '/' || c == '\\' || c == '\x7f';
  };
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && std::ranges::none_of(name, is_odd);
}

std::vector<std::string> describing_files(const std::vector<std::string>& names) {
  std::vector<std::string> chosen;
  std::ranges::copy_if(names, std::back_inserter(chosen), describes);
  return chosen;
}

std::vector<std::string> weight_files(const std::vector<std::string>& names, const fs::path& snapshot) {
  if (has(names, kWeights)) return {kWeights};
  if (has(names, kIndex)) return files_in_index(snapshot / kIndex, names);
  std::vector<std::string> chosen;
  std::ranges::copy_if(names, std::back_inserter(chosen),
                       [](const std::string& name) { return is_plain_name(name) && name.ends_with(".safetensors"); });
  return chosen;
}

}  // namespace gputrain::hub

#include "gputrain/models/class_names.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

namespace gputrain::models {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<std::string> lower(std::vector<std::string> names) {
  for (std::string& name : names) name = lower(std::move(name));
  return names;
}

/// Does what rows_by_name() does, but compares case; returns nothing too if a name occurs twice.
std::vector<int64_t> rows_by_exact_name(const std::vector<std::string>& theirs, const std::vector<std::string>& ours) {
  std::map<std::string, int64_t> left;
  for (size_t row = 0; row < theirs.size(); ++row) left.emplace(theirs[row], row);
  if (left.size() != theirs.size()) return {};
  std::vector<int64_t> rows;
  for (const std::string& name : ours) {
    const auto found = left.find(name);
    if (found == left.end()) return {};
    rows.push_back(found->second);
    left.erase(found);
  }
  for (const std::string& name : theirs)
    if (const auto found = left.find(name); found != left.end()) rows.push_back(found->second);
  return rows;
}

}  // namespace

std::vector<std::string> class_names_in(const nlohmann::json& config) {
  const auto list = config.find("label_names");  // key of timm
  const auto is_text = [](const nlohmann::json& name) { return name.is_string(); };
  if (list != config.end() && list->is_array() && std::ranges::all_of(*list, is_text))
    return list->get<std::vector<std::string>>();
  const auto found = config.find("id2label");
  if (found == config.end() || !found->is_object()) return {};
  std::vector<std::string> names;
  bool is_numbered = true;
  for (size_t i = 0; i < found->size(); ++i) {
    const auto name = found->find(std::to_string(i));
    if (name == found->end() || !name->is_string()) return {};
    names.push_back(*name);
    is_numbered = is_numbered && names.back() == "LABEL_" + std::to_string(i);
  }
  return is_numbered ? std::vector<std::string>() : names;
}

std::vector<int64_t> rows_by_name(const std::vector<std::string>& theirs, const std::vector<std::string>& ours) {
  if (ours.empty()) return {};
  const auto rows = rows_by_exact_name(theirs, ours);
  return rows.empty() ? rows_by_exact_name(lower(theirs), lower(ours)) : rows;
}

std::vector<std::string> names_of_rows(int64_t rows, const std::vector<std::string>& of_data,
                                       const std::vector<std::string>& given) {
  if (std::ssize(of_data) == rows) return of_data;
  if (std::ssize(given) != rows) return std::ssize(of_data) < rows ? of_data : std::vector<std::string>();
  if (of_data.empty()) return given;
  std::vector<std::string> names;
  for (const int64_t row : rows_by_name(given, of_data)) names.push_back(given[static_cast<size_t>(row)]);
  return names;
}

}  // namespace gputrain::models

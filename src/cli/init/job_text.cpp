#include "job_text.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "gputrain/core/error.hpp"

namespace gputrain::app {

JobText::JobText(std::string_view yaml) {
  std::istringstream lines{std::string(yaml)};
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (!line.empty() && line[0] != ' ' && line[0] != '#' && colon != std::string::npos) {
      sections_.emplace_back(line.substr(0, colon), line.substr(colon + 1) + "\n");
    } else if (!sections_.empty()) {
      sections_.back().second += line + "\n";
    }
  }
}

JobText& JobText::set(const std::string& key, const std::string& value) {
  const std::string text = (value.starts_with('\n') ? "" : " ") + value + "\n";
  const auto found = std::ranges::find(sections_, key, &std::pair<std::string, std::string>::first);
  if (found == sections_.end())
    sections_.emplace_back(key, text);
  else
    found->second = text;
  return *this;
}

JobText& JobText::remove(const std::string& key) {
  std::erase_if(sections_, [&](const auto& section) { return section.first == key; });
  return *this;
}

JobText& JobText::replace(const std::string& key, std::string_view part, const std::string& by) {
  for (auto& [name, value] : sections_) {
    const size_t at = name == key ? value.find(part) : std::string::npos;
    if (at == std::string::npos) continue;
    value.replace(at, part.size(), by);
    return *this;
  }
  assertion_failed("replace", __FILE__, __LINE__, key + " has no " + std::string(part));
}

std::string JobText::line_of(const std::string& key, std::string_view name) const {
  const auto found = std::ranges::find(sections_, key, &std::pair<std::string, std::string>::first);
  if (found == sections_.end()) return {};
  const std::string begin = "\n  " + std::string(name) + ": ";
  const size_t at = found->second.find(begin);
  if (at == std::string::npos) return {};
  const size_t value = at + begin.size();
  return found->second.substr(value, found->second.find('\n', value) - value);
}

int64_t JobText::number_of(const std::string& key, const std::string& name) const {
  const auto found = std::ranges::find(sections_, key, &std::pair<std::string, std::string>::first);
  const size_t at = found == sections_.end() ? std::string::npos : found->second.find(name + ": ");
  return at == std::string::npos ? 0 : std::atoll(found->second.c_str() + at + name.size() + 2);
}

std::string JobText::text() const {
  std::string all;
  for (const auto& [key, value] : sections_) all += key + ":" + value;
  return all;
}

std::string in_quotes(const std::string& text) {
  std::string yaml = "'";
  for (const char c : text) yaml += c == '\'' ? "''" : std::string(1, c);
  return yaml + "'";
}

std::string with_key(const std::string& map, const std::string& more) {
  if (more.empty()) return map;
  const std::string inside = map.substr(1, map.rfind('}') - 1);
  return "{" + inside + (inside.empty() ? "" : ", ") + more + "}";
}

}  // namespace gputrain::app

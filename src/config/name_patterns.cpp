#include "gputrain/config/name_patterns.hpp"

#include <algorithm>
#include <set>

#include "gputrain/config/names.hpp"

namespace gputrain::config {
namespace {

constexpr size_t kMostParts = 8;

/// Returns the patterns of all modules in the names: "h.*", "h.0.*".
std::set<std::string> module_patterns(const std::vector<std::string>& names) {
  std::set<std::string> patterns;
  for (const std::string& name : names) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      patterns.insert(name.substr(0, dot) + ".*");
  }
  return patterns;
}

}  // namespace

// After a mismatch only the last `*` takes one character more, so the time is at most the product of the lengths.
bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, taken_until = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken_until = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken_until;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(p), pattern.end(), [](char c) { return c == '*'; });
}

SignedPattern signed_pattern(std::string_view text) {
  const bool takes_away = text.starts_with('!');
  return {.pattern = text.substr(takes_away ? 1 : 0), .takes_away = takes_away};
}

bool are_for(const std::vector<std::string>& patterns, std::string_view name, bool otherwise) {
  bool is_chosen = otherwise;
  for (const std::string& text : patterns) {
    const auto [pattern, takes_away] = signed_pattern(text);
    if (matches(pattern, name)) is_chosen = !takes_away;
  }
  return is_chosen;
}

std::string pattern_hint(std::string_view pattern, const std::vector<std::string>& names) {
  const std::set<std::string> modules = module_patterns(names);
  std::vector<std::string> candidates(modules.begin(), modules.end());
  candidates.insert(candidates.end(), names.begin(), names.end());
  const auto completes = [end = "." + std::string(pattern)](const std::string& name) { return name.ends_with(end); };
  if (const auto whole = std::ranges::find_if(candidates, completes); whole != candidates.end())
    return "did you mean '" + *whole + "'?";
  if (std::string guess = did_you_mean(pattern, candidates); !guess.empty()) return guess;
  std::set<std::string> first_parts;
  for (const std::string& name : names)
    first_parts.insert(name.find('.') == std::string::npos ? name : name.substr(0, name.find('.')) + ".*");
  std::string text = "there are ";
  size_t shown = 0;
  for (const std::string& part : first_parts) {
    if (shown == kMostParts) return text + ", ...";
    text += (shown++ == 0 ? "" : ", ") + part;
  }
  return text;
}

}  // namespace gputrain::config

#include "names.hpp"

#include <algorithm>

#include "scalar.hpp"

namespace gputrain::config {
namespace {

constexpr size_t kLongestName = 64;
constexpr size_t kMostSuggestions = 3;

std::string normalised(std::string_view name) {
  std::string letters;
  for (const char c : name.substr(0, kLongestName)) {
    if (c == '_' || c == '-' || c == ' ') continue;
    letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return letters;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  const std::string from = normalised(a), to = normalised(b);
  std::vector<size_t> before(to.size() + 1), last(to.size() + 1), row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = last;
    last = row;
  }
  return last[to.size()];
}

std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates) {
  size_t best = std::max<size_t>(1, std::min(name.size(), kLongestName) / 3);
  std::vector<std::string> found;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance > best || distance >= candidate.size()) continue;
    if (distance < best) found.clear();
    best = distance;
    if (std::find(found.begin(), found.end(), candidate) == found.end()) found.push_back(candidate);
  }
  if (found.size() > kMostSuggestions) found.resize(kMostSuggestions);
  return found;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  std::vector<std::string> names = nearest(name, candidates);
  if (names.empty()) return {};
  for (std::string& near : names) near = shown(near);
  return "did you mean " + either(names) + "?";
}

}  // namespace gputrain::config

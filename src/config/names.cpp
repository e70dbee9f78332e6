#include "gputrain/config/names.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "gputrain/core/lower_case.hpp"
#include "yaml/scalar.hpp"

namespace gputrain::config {
namespace {

constexpr size_t kLongestName = 64;
constexpr size_t kMostSuggestions = 3;
constexpr size_t kShortestBeginning = 3;

std::string normalised(std::string_view name) {
  std::string letters;
  for (const char c : name.substr(0, kLongestName)) {
    if (c == '_' || c == '-' || c == ' ') continue;
    letters += lower_case(c);
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
  if (const std::string begin = normalised(name); names.empty() && begin.size() >= kShortestBeginning) {
    std::ranges::copy_if(candidates, std::back_inserter(names), [&](const std::string& candidate) {
      return names.size() < kMostSuggestions && normalised(candidate).starts_with(begin);
    });
  }
  if (names.empty()) return {};
  for (std::string& near : names) near = shown(near);
  return "did you mean " + either(names) + "?";
}

std::string ours_for(std::string_view theirs, const std::vector<std::string>& allowed) {
  static const std::multimap<std::string, std::string, std::less<>> kWords{
      {"bfloat16", "bf16"}, {"bf16-mixed", "bf16"}, {"bf16-true", "bf16"},    {"float16", "fp16"},  {"16", "fp16"},
      {"16-mixed", "fp16"}, {"half", "fp16"},       {"float32", "fp32"},      {"32", "fp32"},       {"32-true", "fp32"},
      {"float", "fp32"},    {"no", "fp32"},         {"float64", "fp64"},      {"64", "fp64"},       {"double", "fp64"},
      {"gpu", "cuda"},      {"full", "block"},      {"offload", "block"},     {"unsloth", "block"}, {"true", "bf16"},
      {"true", "block"},    {"true", "drop"},       {"false", "fp32"},        {"false", "none"},    {"false", "pad"},
      {"rope", "rotary"},   {"rms", "rmsnorm"},     {"gelu_new", "gelu_tanh"}};
  const auto [first, last] = kWords.equal_range(lower_case(theirs));
  const auto found = std::find_if(first, last, [&](const auto& one) {
    return std::find(allowed.begin(), allowed.end(), one.second) != allowed.end();
  });
  return found == last ? std::string() : found->second;
}

}  // namespace gputrain::config

#include "recipes.hpp"

#include <algorithm>
#include <sstream>

#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain::app {
namespace {

constexpr std::string_view kNeeds = "A step needs ";

/// Returns the comments before the first key, without their marks.
std::vector<std::string> head_of(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::vector<std::string> head;
  for (std::string line; std::getline(lines, line) && line.starts_with('#');)
    head.push_back(line.size() > 2 ? line.substr(2) : "");
  return head;
}

}  // namespace

std::string Recipe::summary() const {
  std::string summary;
  for (const std::string& line : head_of(text)) {
    if (line.empty() || line.starts_with(' ') || line.starts_with(kNeeds)) break;  // commands are indented
    summary += (summary.empty() ? "" : " ") + line;
  }
  return summary;
}

std::string Recipe::memory() const {
  for (const std::string& line : head_of(text))
    if (line.starts_with(kNeeds)) return line.substr(kNeeds.size(), line.rfind('.') - kNeeds.size());
  return {};
}

const Recipe& recipe_named(std::string_view name) {
  const auto found = std::ranges::find(recipes(), name, &Recipe::name);
  if (found != recipes().end()) return *found;
  throw Error(ExitCode::usage, {.what = "there is no recipe '" + printable(name) + "'",
                                .where = "--recipe",
                                .hint = "`gputrain init --list` shows all"});
}

}  // namespace gputrain::app

// Text of the page configs/compatibility.md.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gputrain/setup/compatibility.hpp"

namespace gputrain::app {
namespace {

struct Words {
  const char *mark, *verb;
};

Words words_of(Relation relation) {
  switch (relation) {
    case Relation::excludes:
      return {"x", "does not go with"};
    case Relation::needs:
      return {"needs ", "needs"};
    case Relation::gives_up:
      return {"o", "has no effect with"};
    case Relation::may_clash:
      return {"?", "may not go with"};
  }
  return {};
}

/// Shows keys as code.
std::string shown(const std::string& feature) {
  const bool is_prose = feature.starts_with("a ") || feature.starts_with("an ") || feature.find('\'') != feature.npos;
  return is_prose ? feature : "`" + feature + "`";
}

/// Returns marks by features, the one that comes later on the page first.
std::map<std::pair<size_t, size_t>, std::string> marks_of(const std::vector<std::string>& features) {
  const auto place = [&](const std::string& name) {
    return static_cast<size_t>(std::ranges::find(features, name) - features.begin());
  };
  std::map<std::pair<size_t, size_t>, std::string> marks;
  int number = 0;
  for (const CompatibilityRule& rule : compatibility_rules()) {
    const auto [column, row] = std::minmax({place(rule.one), place(rule.other)});
    const std::string mark = fmt::format("{}{}", words_of(rule.relation).mark, ++number);
    std::string& cell = marks[{row, column}];
    cell += (cell.empty() ? "" : ", ") + (rule.and_also.empty() ? mark : "(" + mark + ")");
  }
  return marks;
}

std::string table() {
  const std::vector<std::string> features = all_features();
  auto marks = marks_of(features);
  std::set<size_t> columns;  // columns that have a mark
  for (const auto& [place, mark] : marks) columns.insert(place.second);
  std::string head = "| |", line = "|-|", rows;
  for (const size_t column : columns) {
    head += fmt::format(" {} |", column + 1);
    line += "-|";
  }
  for (size_t row = 0; row < features.size(); ++row) {
    rows += fmt::format("| **{}** {} |", row + 1, shown(features[row]));
    for (const size_t column : columns) rows += fmt::format(" {} |", marks[{row, column}]);
    rows += "\n";
  }
  return head + "\n" + line + "\n" + rows;
}

std::string reason(const CompatibilityRule& rule) {
  std::string text = fmt::format("{} {} {}", shown(rule.one), words_of(rule.relation).verb, shown(rule.other));
  if (!rule.and_also.empty()) text += " together with " + shown(rule.and_also);
  text += ": " + rule.why + ".";
  for (const std::string name : {"model", "task", "optimizer", "curve"})
    if (const size_t at = text.find("{" + name + "}"); at != text.npos)
      text.replace(at, name.size() + 2, "the " + name);
  return rule.instead.empty() ? text : text + " Instead: " + rule.instead + ".";
}

}  // namespace

std::string compatibility_page() {
  std::string page =
      "# What does not go together\n\n"
      "`gputrain validate` refuses jobs by this table, for any number of ranks, with all reasons at once. `gputrain "
      "run` "
      "does the same before anything is opened, for the ranks that there are: what they do not share has no effect. "
      "`gputrain plan` leaves out candidates by the same table. The program writes this page.\n\n"
      "| in a cell | meaning |\n|-|-|\n"
      "| x | the two do not go together |\n"
      "| (x) | the same, if the job has a third feature, too |\n"
      "| needs | the one in the row does not go without the one in the column |\n"
      "| o | together, the one in the row has no effect |\n"
      "| ? | the names of the parameters decide |\n\n"
      "The number is that of the reason below. What stands there after \"Instead\" is a value for the first key of the "
      "reason.\n\n" +
      table() + "\n## Reasons\n\n";
  int number = 0;
  for (const CompatibilityRule& rule : compatibility_rules()) page += fmt::format("{}. {}\n", ++number, reason(rule));
  return page;
}

}  // namespace gputrain::app

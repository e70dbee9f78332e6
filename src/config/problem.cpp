#include "gputrain/config/problem.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/ranges.h>

#include "gputrain/core/numbers.hpp"
#include "gputrain/core/secrets.hpp"
#include "problems.hpp"
#include "yaml/odd_characters.hpp"
#include "yaml/scalar.hpp"

namespace gputrain::config {
namespace {

constexpr size_t kExcerptWidth = 100;
constexpr size_t kExcerptLead = 60;  // characters shown before the place in a long line

constexpr const char* kShownTab = "\u2192";
constexpr const char* kShownInvisible = "\u2423";

struct Paint {
  std::string_view bold, red, cyan, dim, off;
};
constexpr Paint kColour{"\x1b[1m", "\x1b[31m", "\x1b[36m", "\x1b[2m", "\x1b[0m"};
constexpr Paint kPlain{};

std::string_view text_line(std::string_view text, int line) {
  for (int i = 1; i < line; ++i) text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  text = text.substr(0, text.find('\n'));
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

/// Splits a line into UTF-8 characters; tabs become arrows, invisible characters open boxes.
std::vector<std::string> characters(std::string_view line) {
  std::vector<std::string> found;
  for (const char c : line) {
    const bool continues = (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;
    if (continues && !found.empty()) {
      found.back() += c;
    } else {
      found.emplace_back(c == '\t' ? kShownTab : std::string(1, c));
    }
  }
  for (std::string& character : found) {
    if (find_invisible(character)) character = kShownInvisible;
  }
  return found;
}

/// Returns the length of the key, value or quoted text at `begin`, in characters.
size_t word_length(const std::vector<std::string>& line, size_t begin) {
  if (begin >= line.size()) return 1;
  const bool quoted = line[begin] == "\"" || line[begin] == "'";
  size_t end = begin + 1;
  int open_braces = line[begin] == "{" ? 1 : 0;  // inside ${...} or {...}
  for (; end < line.size(); ++end) {
    const std::string& c = line[end];
    if (quoted && c == line[begin]) return end + 1 - begin;
    if (quoted) continue;
    if (c == "{") ++open_braces;
    if (c == "}" && --open_braces < 0) break;
    const bool ends_key = c == ":" && (end + 1 == line.size() || line[end + 1] == " ");
    if (open_braces == 0 && (ends_key || c == "," || c == "]" || (c == "#" && line[end - 1] == " "))) break;
  }
  while (end > begin + 1 && line[end - 1] == " ") --end;
  return end - begin;
}

std::string excerpt(const SourceLocation& location, const Paint& paint) {
  if (location.line == 0 || location.source->kind != Source::Kind::file) return {};
  const std::vector<std::string> line =
      characters(with_starred_secrets(text_line(location.source->text, location.line)));
  const size_t column = std::min(static_cast<size_t>(std::max(location.column - 1, 0)), line.size());
  const size_t begin = line.size() > kExcerptWidth && column > kExcerptLead ? column - kExcerptLead : 0;
  const size_t end = std::min(line.size(), begin + kExcerptWidth);
  std::string shown_line = begin > 0 ? "..." : "";
  const size_t lead = shown_line.size() + column - begin;
  for (size_t i = begin; i < end; ++i) shown_line += printable(line[i]);
  if (end < line.size()) shown_line += "...";
  const size_t marked = std::min(word_length(line, column), std::max<size_t>(1, end - std::min(column, end)));
  const std::string number = std::to_string(location.line);
  const std::string margin(std::max<size_t>(number.size(), 4), ' ');
  std::string text = std::string(paint.dim) + margin.substr(number.size()) + number + " | " + std::string(paint.off);
  text += shown_line + "\n";
  text += std::string(paint.dim) + margin + " | " + std::string(paint.off) + std::string(lead, ' ');
  return text + std::string(paint.red) + std::string(marked, '^') + std::string(paint.off) + "\n";
}

/// Removes the key from the message if `--set a.b` already shows it.
std::string_view said_after(const SourceLocation& location, std::string_view what) {
  if (location.is_default() || location.source->kind != Source::Kind::command_line) return what;
  const std::string_view name = location.source->name;
  const size_t colon = what.find(": ");
  return colon != what.npos && name == "--set " + std::string(what.substr(0, colon)) ? what.substr(colon + 2) : what;
}

std::string render_problem(const Problem& problem, const Paint& paint) {
  std::string text = std::string(paint.bold);
  if (!problem.location.is_default()) text += problem.location.to_string() + ": ";
  text += std::string(paint.off) + std::string(said_after(problem.location, problem.what)) + "\n";
  text += excerpt(problem.location, paint);
  for (std::string_view hint = problem.hint; !hint.empty();) {
    const size_t end = std::min(hint.find('\n'), hint.size());
    text += "     " + std::string(paint.cyan) + "= " + std::string(hint.substr(0, end)) + std::string(paint.off) + "\n";
    hint.remove_prefix(std::min(end + 1, hint.size()));
  }
  return text;
}

/// Returns whether a place is a --set, and not a setting that was found in a pretrained model's config.json.
bool is_set(const SourceLocation& location) { return location.source && location.source->name.starts_with("--set "); }

/// Returns where the problems are: "job.yaml and --set".
std::string sources_of(const std::vector<Problem>& problems) {
  std::vector<std::string> names;
  for (const auto& [location, what, hint] : problems) {
    if (location.is_default()) continue;
    const std::string name = is_set(location) ? "--set" : printable(location.source->name);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names.empty() ? "the job" : fmt::format("{}", fmt::join(names, " and "));
}

std::string render_page(const std::vector<Problem>& problems, const Paint& paint) {
  std::string text = counted(std::ssize(problems), "mistake") + " in " + sources_of(problems) + "\n";
  for (const Problem& problem : problems) text += "\n" + render_problem(problem, paint);
  if (problems.size() >= Problems::kMost) text += "\nno more are looked for\n";
  text.pop_back();
  return text;
}

/// Sorts files in the order of their first problem, then --set; within a file from top to bottom.
std::vector<Problem> sorted(std::vector<Problem> problems) {
  std::vector<std::string> sources;
  const auto rank = [&sources](const Problem& problem) {
    const std::string name = problem.location.source ? problem.location.source->name : "";
    const auto found = std::find(sources.begin(), sources.end(), name);
    if (found != sources.end()) return found - sources.begin();
    sources.push_back(name);
    return static_cast<std::ptrdiff_t>(sources.size() - 1);
  };
  for (const Problem& problem : problems) static_cast<void>(rank(problem));
  std::stable_sort(problems.begin(), problems.end(), [&rank](const Problem& a, const Problem& b) {
    const auto key = [&rank](const Problem& p) {
      return std::tuple(is_set(p.location), rank(p), p.location.line, p.location.column);
    };
    return key(a) < key(b);
  });
  for (Problem& problem : problems) {
    problem.what = with_starred_secrets(problem.what);
    problem.hint = with_starred_secrets(problem.hint);
  }
  return problems;
}

}  // namespace

SpecError::SpecError(std::vector<Problem> problems) : SpecError(Sorted{}, sorted(std::move(problems))) {}

SpecError::SpecError(Sorted, std::vector<Problem> problems)
    : Error(ExitCode::usage, {.what = render_page(problems, kPlain)}), problems_(std::move(problems)) {}

SpecError::~SpecError() = default;

std::string SpecError::render(bool colour) const { return render_page(problems_, colour ? kColour : kPlain); }

}  // namespace gputrain::config

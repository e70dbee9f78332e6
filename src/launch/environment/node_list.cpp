#include "gputrain/launch/node_list.hpp"

#include <charconv>
#include <utility>

#include "host_name.hpp"

namespace gputrain::launch {
namespace {

constexpr size_t kMostNodes = 1 << 16;
constexpr size_t kMostDigits = 9;  // of a number in a range: fits an int

std::optional<int> list_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_good = !text.empty() && text.size() <= kMostDigits && text[0] != '-' && error == std::errc{} &&
                       end == text.data() + text.size();
  return is_good ? std::optional(value) : std::nullopt;
}

std::string padded(int number, size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

/// Splits at commas outside brackets; empty if the brackets do not match.
std::optional<std::vector<std::string_view>> split(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[' || text[i] == ']') {
      if (inside == (text[i] == '[')) return std::nullopt;
      inside = !inside;
    } else if (text[i] == ',' && !inside) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  if (inside) return std::nullopt;
  parts.push_back(text.substr(begin));
  return parts;
}

/// Expands one entry, "rack[1-2]n[01-16]": each bracket multiplies the names before it.
class NodeEntry {
 public:
  NodeEntry(std::string_view text, size_t limit) : limit_(limit) {
    while (!text.empty()) {
      const size_t open = text.find('[');
      append({std::string(text.substr(0, open))});
      if (open == std::string_view::npos) break;
      const size_t close = text.find(']', open);  // split() checked that they match
      append(numbers(text.substr(open + 1, close - open - 1)));
      text.remove_prefix(close + 1);
    }
  }

  const std::string& problem() const { return problem_; }
  std::vector<std::string>& names() { return names_; }

 private:
  void append(const std::vector<std::string>& tails) {
    if (!problem_.empty()) return;
    if (tails.size() > limit_ / names_.size()) return fail_by_size();
    std::vector<std::string> longer;
    longer.reserve(names_.size() * tails.size());
    for (const auto& name : names_) {
      if (name.size() > kLongestHostName) problem_ = "a name in it is too long";
      for (const auto& tail : tails) longer.push_back(name + tail);
    }
    names_ = std::move(longer);
  }

  std::vector<std::string> numbers(std::string_view ranges) {
    std::vector<std::string> all;
    while (problem_.empty()) {
      const size_t comma = ranges.find(',');
      append_range(ranges.substr(0, comma), all);
      if (comma == std::string_view::npos) break;
      ranges.remove_prefix(comma + 1);
    }
    return all;
  }

  // All numbers of a range are padded to the width of the first.
  void append_range(std::string_view range, std::vector<std::string>& all) {
    const size_t dash = range.find('-');
    const std::string_view low_text = range.substr(0, dash);
    const auto low = list_number(low_text);
    const auto high = dash == std::string_view::npos ? low : list_number(range.substr(dash + 1));
    if (!low || !high || *low > *high) {
      problem_ = in_quotes(range) + " in it is no range of numbers";
    } else if (static_cast<size_t>(*high - *low) >= limit_ - all.size()) {
      fail_by_size();
    } else {
      for (int number = *low; number <= *high; ++number) all.push_back(padded(number, low_text.size()));
    }
  }

  void fail_by_size() { problem_ = "it expands to more than " + std::to_string(kMostNodes) + " hosts"; }

  size_t limit_;
  std::vector<std::string> names_{""};
  std::string problem_;
};

}  // namespace

std::optional<std::vector<std::string>> expand_node_list(std::string_view text, std::string& problem) {
  const auto parts = split(text);
  if (!parts) {
    problem = "its brackets do not match";
    return std::nullopt;
  }
  std::vector<std::string> hosts;
  for (const std::string_view part : *parts) {
    if (hosts.size() >= kMostNodes) {
      problem = "it names more than " + std::to_string(kMostNodes) + " hosts";
      return std::nullopt;
    }
    NodeEntry entry(part, kMostNodes - hosts.size());
    problem = entry.problem();
    for (auto& name : entry.names()) {
      if (problem.empty() && !is_host_name(name)) problem = in_quotes(name) + " in it is no host name";
      if (!problem.empty()) return std::nullopt;
      hosts.push_back(std::move(name));
    }
  }
  return hosts;
}

std::optional<std::vector<int>> expand_task_counts(std::string_view text, std::string& problem) {
  std::vector<int> counts;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t open = part.find("(x");
    const auto count = list_number(part.substr(0, open));
    std::optional<int> times = 1;
    if (open != std::string_view::npos) {
      times = part.ends_with(')') ? list_number(part.substr(open + 2, part.size() - open - 3)) : std::nullopt;
    }
    if (!count || !times || *times < 1) {
      problem = in_quotes(part) + " in it is no number of tasks";
      return std::nullopt;
    }
    if (static_cast<size_t>(*times) > kMostNodes - counts.size()) {
      problem = "it names more than " + std::to_string(kMostNodes) + " nodes";
      return std::nullopt;
    }
    counts.insert(counts.end(), static_cast<size_t>(*times), *count);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return counts;
}

}  // namespace gputrain::launch

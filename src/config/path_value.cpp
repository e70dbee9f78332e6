#include "path_value.hpp"

#include <algorithm>

namespace gputrain::config {
namespace {

bool begins_variable(std::string_view head) {
  if (head.size() < 2 || head[0] != '$') return false;
  const char c = head[1];
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

}  // namespace

Parsed<std::string> parse_path(std::string_view text, const Environment& environment) {
  const std::string_view head = text.substr(0, text.find('/'));
  if (head == "~" || head == "$HOME") {
    auto home = environment("HOME");
    if (!home || home->empty() || printable(*home) != *home)
      return {.problem = "the home folder is unknown, as HOME is not set to a path", .hint = "write the whole path"};
    while (home->ends_with('/')) home->pop_back();
    const std::string path = *home + std::string(text.substr(head.size()));
    return {.value = path.empty() ? "/" : path};
  }
  if (head.starts_with('~'))
    return {.problem = shown(head) + " would be the home folder of another user, which only a shell knows",
            .hint = "write the whole path; for a file whose name begins with '~' write `./" + printable(text) + "`"};
  if (begins_variable(head))
    return {.problem = shown(head) + " is not replaced here", .hint = "write ${env:" + printable(head.substr(1)) + "}"};
  return {.value = std::string(text)};
}

}  // namespace gputrain::config

#include "gputrain/core/wrap.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "gputrain/core/printable.hpp"

namespace gputrain {

std::string wrapped(std::string_view text, size_t room, size_t indent) {
  std::string lines;
  while (text.size() > room) {
    size_t end = text.rfind(' ', room);
    if (end == std::string_view::npos || end == 0) end = text.find(' ', 1);
    if (end == std::string_view::npos) break;
    lines += text.substr(0, text.find_last_not_of(' ', end) + 1);
    lines += "\n" + std::string(indent, ' ');
    text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
  }
  return lines + std::string(text);
}

std::string wrapped_for_stderr(std::string_view text) {
  constexpr size_t kIndent = 2;
  winsize size{};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 10 * kIndent;
  if (!is_known) return std::string(text);
  std::string lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines += (begin > 0 ? "\n" : "") + wrapped(text.substr(begin, end - begin), size.ws_col - kIndent, kIndent);
    begin = end + 1;
  }
  return lines;
}

std::string in_one_line(std::string_view text, bool unicode) {
  std::string line;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\n' || text.substr(at, 2) == "\r\n") {
      line += unicode ? "↵" : "\\n";
      if (text[at] == '\r') ++at;
    } else if (text[at] == '\t') {
      line += unicode ? "⇥" : "\\t";
    } else {
      line += text[at];
    }
  }
  return line;
}

std::string cut_to(std::string_view text, size_t most) {
  size_t count = 0, end_of_room = 0;  // characters, and bytes of those that leave room for "..."
  for (size_t at = 0; at < text.size(); at += std::max<size_t>(1, character_length(text, at))) {
    if (count == most - 3) end_of_room = at;
    if (++count > most) return std::string(text.substr(0, end_of_room)) + "...";
  }
  return std::string(text);
}

}  // namespace gputrain

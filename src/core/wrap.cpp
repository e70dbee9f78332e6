#include "gputrain/core/wrap.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

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

}  // namespace gputrain

#include "gputrain/core/wrap.hpp"

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

}  // namespace gputrain

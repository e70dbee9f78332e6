#include "gputrain/monitor/newest_lines.hpp"

#include <algorithm>
#include <fstream>

namespace gputrain::monitor {

std::string newest_lines(const std::filesystem::path& path, size_t bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const auto size = static_cast<size_t>(file.tellg());
  const size_t begin = size - std::min(size, bytes);
  file.seekg(static_cast<std::streamoff>(begin));
  std::string text(size - begin, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const size_t first = begin == 0 ? 0 : text.find('\n') + 1;  // npos + 1 is 0: one line without an end
  return text.substr(first);
}

}  // namespace gputrain::monitor

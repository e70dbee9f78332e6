#include "read_whole.hpp"

#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "gputrain/core/error.hpp"

namespace gputrain::monitor {

std::string read_whole(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open() && errno != ENOENT && errno != ENOTDIR)
    throw Error(ExitCode::environment,
                {.what = "cannot be opened: " + std::generic_category().message(errno), .where = path.string()});
  std::string text;
  std::array<char, 65536> block{};
  while (file.read(block.data(), block.size()), file.gcount() > 0)
    text.append(block.data(), static_cast<size_t>(file.gcount()));
  if (file.is_open() && !file.eof()) {  // a read error is not the end of the file
    throw Error(ExitCode::environment,
                {.what = "cannot be read to its end", .where = path.string(), .hint = "check its disk"});
  }
  return text;
}

}  // namespace gputrain::monitor

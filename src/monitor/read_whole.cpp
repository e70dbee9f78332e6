#include "read_whole.hpp"

#include <array>
#include <fstream>

#include "gputrain/core/error.hpp"

namespace gputrain::monitor {

std::string read_whole(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 65536> block{};
  while (file.read(block.data(), block.size()), file.gcount() > 0)
    text.append(block.data(), static_cast<size_t>(file.gcount()));
  const bool is_absent = !file.is_open() && !std::filesystem::exists(path);
  if (!is_absent && !file.eof()) {  // a read error is not the end of the file
    throw Error(ExitCode::environment,
                {.what = "cannot be read to its end", .where = path.string(), .hint = "check its disk"});
  }
  return text;
}

}  // namespace gputrain::monitor

#include "gputrain/core/json.hpp"

#include <fstream>

#include "gputrain/core/error.hpp"

namespace gputrain {

std::string reason_in(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  return text.substr(text.find("] ") + 2);
}

bool is_nested_too_deep(std::string_view json) noexcept {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{')) {
      if (++depth > kMostJsonDepth) return true;
    } else if (!in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

std::string read_json_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text, block(size_t{1} << 16, '\0');
  while (file.read(block.data(), std::ssize(block)) || file.gcount() > 0) {
    text.append(block, 0, static_cast<size_t>(file.gcount()));
    if (std::ssize(text) > kMostJsonBytes)
      throw Error(ExitCode::data, {.what = "the file has more than " + std::to_string(kMostJsonBytes >> 20) +
                                           " MiB, and files like it have a few",
                                   .where = path.string(),
                                   .hint = "see whether it is the file that it is named as"});
  }
  return text;
}

}  // namespace gputrain

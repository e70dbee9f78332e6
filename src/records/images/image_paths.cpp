#include "image_paths.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/datasets/image_samples.hpp"

namespace gputrain::records {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

}  // namespace

ImagePaths::ImagePaths(fs::path folder) : folder_(std::move(folder)) {}

std::string ImagePaths::found(const std::string& name) const {
  if (name.find("://") != std::string::npos)
    throw Error(ExitCode::data, {.what = "the image " + printable(name.substr(0, 200)) + " is an address",
                                 .where = {},
                                 .hint = "images are read from files: download them first"});
  std::string slashed = name;
  std::ranges::replace(slashed, '\\', '/');
  const fs::path above = fs::path("..");
  const bool has_ending = datasets::is_image_name(name);
  for (const std::string& written : {name, slashed}) {
    for (const fs::path& path : {fs::path(written), above / written}) {
      if (is_file(folder_ / path)) return path.string();
      if (has_ending) continue;
      if (const std::string longer = with_ending(path.string()); !longer.empty()) return longer;
    }
    if (written == slashed) break;
  }
  return {};
}

std::string ImagePaths::with_ending(const std::string& path) const {
  std::string found;
  for (const char* ending : {".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG"}) {
    if (!is_file(folder_ / (path + ending))) continue;
    if (!found.empty())
      throw Error(ExitCode::data, {.what = "the name " + printable(path) + " has no ending, and there are " +
                                           printable(fs::path(found).filename().string()) + " and " +
                                           printable(fs::path(path + ending).filename().string())});
    found = path + ending;
  }
  return found;
}

std::string ImagePaths::hint() const {
  const std::string folder = folder_.empty() ? "." : folder_.string();
  return "paths are those below the folder of the list, " + printable(folder) + ", or the one above it, or absolute";
}

}  // namespace gputrain::records

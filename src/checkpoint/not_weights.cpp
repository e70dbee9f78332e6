#include "not_weights.hpp"

#include <algorithm>

#include "gputrain/core/file_kind.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain::checkpoint {
namespace {

constexpr const char* kUnfinished = "its download or copy did not finish: get it again";

/// Returns its first line that is not empty, or the beginning of a long one.
std::string first_line(std::string_view text) {
  constexpr size_t kShown = 60;
  text.remove_prefix(std::min(text.find_first_not_of(" \r\n\t"), text.size()));
  text = text.substr(0, text.find_first_of("\r\n\t"));
  return printable(text.substr(0, kShown));
}

}  // namespace

NotWeights not_weights(std::string_view begin) {
  const FileKind kind = file_kind(begin);
  switch (kind.type) {
    case FileType::unknown:
      if (begin.empty()) return {"an empty file", kUnfinished};
      if (begin.size() >= 64 && begin.find_first_not_of('\0') == begin.npos) return {"a file of zeros", kUnfinished};
      return {};
    case FileType::safetensors:
      return {};
    case FileType::text:
      return {"a text: \"" + first_line(begin) + "\""};
    case FileType::web_page:
      return {"a web page", "download the file itself: on the Hugging Face hub its address has /resolve/, not /blob/"};
    case FileType::lfs_pointer:
      return {"a Git LFS pointer, which a clone without git-lfs has in its place",
              "`git lfs pull` in its folder, or download the file itself"};
    case FileType::zip:
    case FileType::pickle:
      return {std::string(kind.name) + ", as torch.save writes", kTorchConversion};
    default: {
      const bool has_remedy = !kind.remedy.empty();
      return {std::string(kind.name), has_remedy ? std::string(kind.remedy) : "take the same weights as safetensors"};
    }
  }
}

}  // namespace gputrain::checkpoint

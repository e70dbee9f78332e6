#include "file_kind.hpp"

#include <algorithm>
#include <array>

namespace gputrain::checkpoint {
namespace {

using std::string_view_literals::operator""sv;

constexpr const char* kUnfinished = "its download or copy did not finish: get it again";
constexpr const char* kAddress =
    "download the file itself: on the Hugging Face hub its address has /resolve/, not /blob/";

struct KnownStart {
  std::string_view bytes;
  const char *what, *hint;
};

// Long enough that no length of a safetensors header looks like them.
constexpr std::array<KnownStart, 8> kKnownStarts{
    {{"version https://git-lfs"sv, "a Git LFS pointer, which a clone without git-lfs has in its place",
      "`git lfs pull` in its folder, or download the file itself"},
     {"PK\3\4"sv, "a zip archive, as torch.save writes", kTorchConversion},
     {"\x80\2\x8a\x0a"sv, "a pickle, as torch.save writes", kTorchConversion},
     {"\x80\4\x95"sv, "a pickle", kTorchConversion},
     {"\x1f\x8b\x08"sv, "compressed by gzip", "decompress it with gunzip"},
     {"\x28\xb5\x2f\xfd"sv, "compressed by zstd", "decompress it with unzstd"},
     {"GGUF"sv, "a GGUF file of llama.cpp", "take the safetensors files that it was made from"},
     {"\x89HDF"sv, "an HDF5 file", "take the same weights as safetensors"}}};

/// Whether `front`, which may be cut off, begins like this.
bool begins_like(std::string_view front, std::string_view bytes) {
  const size_t common = std::min(front.size(), bytes.size());
  return common >= std::min<size_t>(8, bytes.size()) && front.substr(0, common) == bytes.substr(0, common);
}

bool is_text(std::string_view front) {
  return std::ranges::all_of(front,
                             [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\r' || c == '\t'; });
}

}  // namespace

FileKind file_kind(std::string_view front) {
  constexpr size_t kShown = 60;
  if (front.empty()) return {"an empty file", kUnfinished};
  for (const KnownStart& known : kKnownStarts) {
    if (begins_like(front, known.bytes)) return {known.what, known.hint};
  }
  const size_t first = std::min(front.find_first_not_of(" \r\n\t"), front.size());
  const std::string_view begin = front.substr(first, kShown);
  if (is_text(begin) && begin.starts_with('<')) return {"a web page", kAddress};
  if (is_text(begin)) return {"a text: \"" + std::string(begin.substr(0, begin.find_first_of("\r\n\t"))) + "\""};
  if (begin.size() == kShown && begin.find_first_not_of('\0') == begin.npos) return {"a file of zeros", kUnfinished};
  return {};
}

}  // namespace gputrain::checkpoint

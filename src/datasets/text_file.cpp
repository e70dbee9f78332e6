#include "gputrain/datasets/text_file.hpp"

#include <span>
#include <string_view>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "gzip_stream.hpp"

namespace gputrain::datasets {
namespace {

std::string unpacked(const data::ReadOnlyFile& file, int64_t most) {
  constexpr size_t kAtOnce = 1 << 20;
  const std::vector<std::byte> packed = file.read(0, file.size());
  GzipStream stream(packed, file.path());
  std::string text;
  for (size_t size = 0, got = kAtOnce; got == kAtOnce; text.resize(size)) {
    text.resize(size + kAtOnce);
    got = stream.read(std::as_writable_bytes(std::span(text).subspan(size)));
    size += got;
    if (static_cast<int64_t>(size) > most) throw_too_much_text(file.path());
  }
  return text;
}

}  // namespace

std::string read_text(const std::string& path, int64_t most) {
  const data::ReadOnlyFile file(path);
  if (file.size() > most) throw_too_much_text(path);
  std::string text;
  if (data::kind_of(file).type == FileType::gzip) {
    text = unpacked(file, most);
  } else {
    text.resize(static_cast<size_t>(file.size()));
    file.read(0, std::as_writable_bytes(std::span(text)));
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

void throw_too_much_text(const std::string& path) {
  throw Error(ExitCode::data,
              {.what = "more than 16 GiB of text, which is held in memory",
               .where = path,
               .hint = "split the file; or make token files (gputrain data tokenize) and use format: tokens"});
}

}  // namespace gputrain::datasets

#include "byte_source.hpp"

#include <algorithm>
#include <utility>

#include "gzip_stream.hpp"
#include "zstd_stream.hpp"

namespace gputrain::datasets {
namespace {

template <class Stream>
ByteSource unpacked_by(ByteSource packed, const std::string& name) {
  return [stream = std::make_shared<Stream>(std::move(packed), name)](std::span<std::byte> to) {
    return stream->read(to);
  };
}

}  // namespace

ByteSource bytes_of(std::shared_ptr<const data::ReadOnlyFile> file) {
  return [file = std::move(file), offset = int64_t{0}](std::span<std::byte> to) mutable {
    const size_t count = std::min(to.size(), static_cast<size_t>(file->size() - offset));
    file->read(offset, to.first(count));
    offset += static_cast<int64_t>(count);
    return count;
  };
}

ByteSource unpacked_bytes_of(std::shared_ptr<const data::ReadOnlyFile> file) {
  const std::string name = file->path();
  const FileType type = data::kind_of(*file).type;
  ByteSource bytes = bytes_of(std::move(file));
  if (type == FileType::gzip) return unpacked_by<GzipStream>(std::move(bytes), name);
  if (type == FileType::zstandard) return unpacked_by<ZstdStream>(std::move(bytes), name);
  return bytes;
}

}  // namespace gputrain::datasets

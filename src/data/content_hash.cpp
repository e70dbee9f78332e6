#include "gputrain/data/content_hash.hpp"

#include <algorithm>
#include <string>

#include "gputrain/core/numbers.hpp"
#include "gputrain/core/random.hpp"

namespace gputrain::data {
namespace {

constexpr int64_t kMostPieces = 256, kPieceBytes = 4096;

/// Returns place `i` of `count`, evenly spread from 0 to `last`; the middle if there is only one.
int64_t spread(int64_t i, int64_t count, int64_t last) { return count == 1 ? last / 2 : i * last / (count - 1); }

uint64_t hash_of(const Content& content, int64_t most_pieces) {
  const int64_t length = std::min(content.size, kPieceBytes);
  const int64_t pieces = std::min(most_pieces, ceil_divide(content.size, kPieceBytes));
  auto hash = static_cast<uint64_t>(content.size);
  std::string piece(static_cast<size_t>(length), '\0');
  for (int64_t i = 0; i < pieces; ++i) {
    content.read(spread(i, pieces, content.size - length), std::as_writable_bytes(std::span(piece)));
    hash = mix(hash, stable_hash(piece));
  }
  return hash;
}

}  // namespace

Content content_of(const ReadOnlyFile& file) {
  return {file.size(), [&file](int64_t offset, std::span<std::byte> to) { file.read(offset, to); }};
}

Content content_of(std::span<const std::byte> bytes) {
  return {std::ssize(bytes), [bytes](int64_t offset, std::span<std::byte> to) {
            std::copy_n(bytes.begin() + offset, to.size(), to.begin());
          }};
}

uint64_t content_hash(int64_t count, const std::function<Content(int64_t index)>& part) {
  const int64_t parts = std::min(count, kMostPieces);
  auto hash = static_cast<uint64_t>(count);
  for (int64_t i = 0; i < parts; ++i) hash = mix(hash, hash_of(part(spread(i, parts, count - 1)), kMostPieces / parts));
  return std::max<uint64_t>(hash, 1);
}

}  // namespace gputrain::data

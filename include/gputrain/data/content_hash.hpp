// Hash that tells data from other data in its place, by sizes and a few pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "gputrain/data/read_only_file.hpp"

namespace gputrain::data {

/// A file, or bytes in memory.
struct Content {
  int64_t size = 0;
  std::function<void(int64_t offset, std::span<std::byte> to)> read;  // fills `to`
};

Content content_of(const ReadOnlyFile& file);  // refers to `file`
Content content_of(std::span<const std::byte> bytes);

/// Returns a hash of content in `count` parts: of the sizes of at most 256 of them, and of at most 256 pieces of 4 KiB,
/// evenly spread over the whole, or all of it if that is less. Never 0. Throws Error(data).
uint64_t content_hash(int64_t count, const std::function<Content(int64_t index)>& part);

}  // namespace gputrain::data

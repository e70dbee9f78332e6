// Readers of a file from its begin to its end, also unpacked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "gputrain/data/read_only_file.hpp"

namespace gputrain::datasets {

/// Function that fills the span with the next bytes and returns their number: fewer than asked for only at the end.
using ByteSource = std::function<size_t(std::span<std::byte>)>;

/// Reads the file as it is.
ByteSource bytes_of(std::shared_ptr<const data::ReadOnlyFile> file);

/// Unpacks a gzip or Zstandard file, and reads any other file as it is. Throws Error(data) for damaged data.
ByteSource unpacked_bytes_of(std::shared_ptr<const data::ReadOnlyFile> file);

}  // namespace gputrain::datasets

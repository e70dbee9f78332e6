// Text files, held in memory as a whole.
#pragma once

#include <cstdint>
#include <string>

namespace gputrain::datasets {

constexpr int64_t kMostTextBytes = int64_t{16} << 30;

/// The text of a file, plain or gzip, without the byte order mark that some editors put first. Throws Error(data) if it
/// has more than `most` bytes.
std::string read_text(const std::string& path, int64_t most = kMostTextBytes);

[[noreturn]] void throw_too_much_text(const std::string& path);

}  // namespace gputrain::datasets

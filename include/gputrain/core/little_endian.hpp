// Numbers in files: their bytes, lowest first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gputrain {

inline std::string little_endian(uint64_t value, size_t count) {
  std::string bytes;
  for (size_t at = 0; at < count; ++at) bytes += static_cast<char>((value >> (8 * at)) & 0xFF);
  return bytes;
}

/// Reads at most eight bytes.
inline uint64_t from_little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t at = bytes.size(); at > 0; --at) value = (value << 8) | static_cast<uint8_t>(bytes[at - 1]);
  return value;
}

}  // namespace gputrain

// The bytes of a safetensors file without its tensors: 8 bytes little-endian header length, a JSON header, the data.
// Knows nothing of torch, so that it can be fuzzed on its own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/core/error.hpp"

namespace gputrain::checkpoint {

/// One tensor as the file holds it: row-major, without gaps.
struct StoredTensor {
  std::string name;
  std::string dtype;           // "F32", "BF16", ...; one of those that item_bytes knows
  std::vector<int64_t> sizes;  // at most kMaxDims; their product fits int64
  uint64_t begin = 0;          // bytes from the start of the file
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr size_t kMaxDims = 64;                    // torch's iterators stop there

/// Bytes of one element; 0 for a dtype we do not know.
uint64_t item_bytes(std::string_view dtype) noexcept;

/// How much of a file parse_safetensors needs, by as many of its first bytes as are known: the length of the header,
/// and once that is known, the header too. Never more than the file has.
uint64_t front_bytes(std::string_view front, uint64_t file_bytes) noexcept;

/// Reads and checks a header. `front` is the file up to the header's end or further, `file_bytes` the size of the
/// whole. The tensors of the result cover the data exactly, and each one's range has the size that its dtype and shape
/// give. Throws Error(code) with `where` for anything else.
SafetensorsHeader parse_safetensors(std::string_view front, uint64_t file_bytes, const std::string& where,
                                    ExitCode code);

/// Orders tensors as the format's reference writer does (wide dtypes first, so that data is aligned; then by name),
/// gives them their ranges in the file, and returns everything that stands before the data.
std::string layout_safetensors(std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata);

}  // namespace gputrain::checkpoint

// The header of a safetensors file: 8 bytes little-endian length, then JSON; the data follows. Does not use LibTorch,
// so that it can be fuzzed alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/core/error.hpp"

namespace gputrain::checkpoint {

/// One tensor in the file: row-major, contiguous.
struct StoredTensor {
  std::string name;
  std::string dtype;           // "F32", "BF16", ...; item_bytes() knows it
  std::vector<int64_t> sizes;  // sizes: at most kMaxDims, with a product that fits int64
  uint64_t begin = 0;          // bytes from the start of the file
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // limit of the format
inline constexpr size_t kMaxDims = 64;                    // limit of torch's iterators

/// Returns the bytes per element; 0 for an unknown dtype.
uint64_t item_bytes(std::string_view dtype) noexcept;

/// Returns how many bytes from the start of the file parse_safetensors() needs. `front` is the part read so far: first
/// only the length is needed, then also the header; if that is too long, enough to say what the file is instead. Never
/// more than the file has.
uint64_t front_bytes(std::string_view front, uint64_t file_bytes) noexcept;

/// Parses and checks a header. `front` holds the file at least to the end of the header; `file_bytes` is the size of
/// the whole file. The returned tensors cover the data exactly, and each range has the size that its dtype and shape
/// give. Throws Error(code) at `where` for anything else.
SafetensorsHeader parse_safetensors(std::string_view front, uint64_t file_bytes, const std::string& where,
                                    ExitCode code);

/// Orders tensors like the reference writer (wide dtypes first, so that data is aligned; then by name), assigns their
/// ranges in the file and returns everything before the data.
std::string layout_safetensors(std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata);

}  // namespace gputrain::checkpoint

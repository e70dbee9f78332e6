// The IDX format (yann.lecun.com/exdb/mnist): a magic number, big-endian sizes, then the values. Plain or gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gputrain::datasets {

struct IdxArray {
  std::vector<int64_t> sizes;         // [count], or [count, height, width]
  std::unique_ptr<uint8_t[]> values;  // row by row
  int64_t count = 0;                  // number of values: the product of the sizes
};

/// Reads an array of unsigned bytes with `dimensions` dimensions. Throws Error(data) for another magic number or type,
/// and if the number of values differs from the declared sizes.
IdxArray read_idx_file(const std::string& path, size_t dimensions);

}  // namespace gputrain::datasets

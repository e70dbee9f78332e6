// Rates of a machine: matrix products, copies in memory, a disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::app {

/// Returns the operations a second, two per multiplication, of products [size, size] x [size, size], repeated for about
/// `seconds`. `precision`: as in a job.
double time_matmul(const std::string& precision, int64_t size, at::Device device, double seconds);

/// Rate of copies.
struct CopyRow {
  std::string what;             // "memory to memory"
  double bytes_per_second = 0;  // read and written bytes each count, as in STREAM; between host and GPU, moved bytes
};
std::vector<CopyRow> time_copies(int64_t bytes, at::Device device, double seconds);

/// Writes a file of `bytes` in the folder with fsync, past the page cache where that is possible, and removes it; on a
/// slow disk a smaller file, which is written for about `seconds`. Returns the bytes a second. Throws
/// Error(environment).
double time_disk(const std::filesystem::path& folder, int64_t bytes, double seconds);

}  // namespace gputrain::app

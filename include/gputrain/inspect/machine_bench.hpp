// Benchmarks of a machine's limits: matrix products, copies in memory, a disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::app {

/// Rate of one product [size, size] x [size, size].
struct MatmulRow {
  std::string precision;
  int64_t size = 0;
  double seconds = 0;           // median time of one product
  double flops_per_second = 0;  // two per multiplication
  double peak = 0;              // rate in the device's data sheet; 0: unknown
};
/// Repeats the product for about `seconds`. `precision`: as in a job.
MatmulRow time_matmul(const std::string& precision, int64_t size, at::Device device, double seconds);

/// Rate of copies.
struct CopyRow {
  std::string what;             // "memory to memory"
  double bytes_per_second = 0;  // read and written bytes each count, as in STREAM; between host and GPU, moved bytes
};
std::vector<CopyRow> time_copies(int64_t bytes, at::Device device, double seconds);

struct DiskRates {
  double write = 0, read = 0;  // bytes per second; writing ends with fsync
  bool is_direct = true;       // false: the file system knows no direct access, and reading shows the page cache
};
/// Writes a file of `bytes` in the folder, reads it, and removes it; on a slow disk a smaller file, which is written
/// for about `seconds`. Throws Error(environment).
DiskRates time_disk(const std::filesystem::path& folder, int64_t bytes,
                    double seconds = std::numeric_limits<double>::infinity());

}  // namespace gputrain::app

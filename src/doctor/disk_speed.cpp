#include "gputrain/doctor/disk_speed.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "gputrain/core/descriptor.hpp"

namespace gputrain::doctor {

double measure_write_speed(const std::filesystem::path& folder, int64_t bytes) {
  const Descriptor file(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));  // gone when it is closed
  if (file.get() < 0) return 0;
  std::vector<char> block(size_t{4} << 20);
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>((i * 2654435761U) >> 13U);  // not all zeros
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t left = bytes; left > 0;) {
    const ssize_t written =
        ::write(file.get(), block.data(), static_cast<size_t>(std::min<int64_t>(left, std::ssize(block))));
    if (written <= 0) return 0;
    left -= written;
  }
  if (::fdatasync(file.get()) != 0) return 0;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(bytes) / std::max(1e-6, took.count());
}

}  // namespace gputrain::doctor

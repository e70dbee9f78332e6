// Running out of memory, on the host or on a GPU: what is thrown, and how to tell it from other failures.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "gputrain/core/error.hpp"

namespace gputrain::device {

/// What our own allocators throw; exit code environment.
class OutOfMemory final : public Error {
 public:
  explicit OutOfMemory(int64_t requested_bytes);
  ~OutOfMemory() override;
  int64_t requested_bytes() const noexcept { return requested_bytes_; }

 private:
  int64_t requested_bytes_;
};

struct Shortage {
  int64_t requested_bytes = 0;  // in the request that failed; 0: not told
  bool on_gpu = false;
};

/// Set when `failure` says that memory could not be had: ours, the C++ library's, ATen's, or a GPU's.
std::optional<Shortage> shortage_of(const std::exception& failure);

struct MemoryReading {
  int64_t peak_tensor_bytes = 0;   // most bytes that tensors held at one time
  int64_t peak_process_bytes = 0;  // most of this process in RAM; 0 on a GPU
  int64_t limit_bytes = 0;         // what there is
  std::string limit;               // in words: "of the machine or its container", "ulimit -d"
};
MemoryReading read_memory(at::Device device);

}  // namespace gputrain::device

// Out of memory on the host or on a GPU: the exception, and how to recognize the condition.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "gputrain/core/error.hpp"

namespace gputrain::device {

/// Our own allocators throw this; exit code `environment`.
class OutOfMemory final : public Error {
 public:
  explicit OutOfMemory(int64_t requested_bytes);
  ~OutOfMemory() override;
  int64_t requested_bytes() const noexcept { return requested_bytes_; }

 private:
  int64_t requested_bytes_;
};

struct Shortage {
  int64_t requested_bytes = 0;  // size of the failed request; 0: unknown
  bool on_gpu = false;
};

/// Returns the shortage if `failure` means out of memory: from our allocators, the C++ library, ATen, or a GPU.
std::optional<Shortage> shortage_of(const std::exception& failure);

struct MemoryReading {
  int64_t peak_tensor_bytes = 0;   // peak of the bytes in tensors
  int64_t peak_process_bytes = 0;  // peak resident memory of this process; 0 on a GPU
  int64_t limit_bytes = 0;         // the memory limit
  std::string limit;               // its source: "of the machine or its container", "by ulimit -d"
};
MemoryReading read_memory(at::Device device);

}  // namespace gputrain::device

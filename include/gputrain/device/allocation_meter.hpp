// Counts the bytes of CPU tensors, including small ones: what a step allocates on top of existing memory.
#pragma once

#include <cstdint>

namespace gputrain::device {

/// A count of the blocks that any thread allocates during its lifetime; only one meter at a time. The first meter
/// inserts itself between ATen and its allocator for the rest of the process.
class AllocationMeter {
 public:
  AllocationMeter();
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  int64_t live_bytes() const;  // allocated and not yet freed
  int64_t peak_bytes() const;  // maximum of live_bytes()
};

}  // namespace gputrain::device

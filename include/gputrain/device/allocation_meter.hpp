// Counts the bytes that CPU tensors take, small ones too: what a step needs besides what was there before it.
#pragma once

#include <cstdint>

namespace gputrain::device {

/// Counts blocks taken since it was made, on all threads; one at a time. The first one puts itself between ATen and its
/// allocator for the rest of the process.
class AllocationMeter {
 public:
  AllocationMeter();
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  int64_t live_bytes() const;  // taken and not given back
  int64_t peak_bytes() const;  // the most of them at one time
};

}  // namespace gputrain::device

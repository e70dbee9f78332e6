// A part of the training loop, for a profiler. Without one it costs some nanoseconds.
#pragma once

#include <ATen/record_function.h>

namespace gputrain::train {

/// Names of the ranges that the training loop marks.
inline constexpr const char* kStepRange = "step";
inline constexpr const char* kDataRange = "wait for data";
inline constexpr const char* kAgreeRange = "agree with the other ranks";
inline constexpr const char* kForwardRange = "forward";
inline constexpr const char* kBackwardRange = "backward";
inline constexpr const char* kReduceRange = "reduce gradients";
inline constexpr const char* kUpdateRange = "update";
inline constexpr const char* kDeviceRange = "wait for the device";

class ProfileRange {
 public:
  explicit ProfileRange(const char* name) : range_(at::RecordScope::USER_SCOPE) {
    if (range_.isActive()) range_.before(name);
  }

 private:
  at::RecordFunction range_;
};

}  // namespace gputrain::train

// A part of the training loop, for a profiler. Without one it costs some nanoseconds.
#pragma once

#include <ATen/record_function.h>

#include "profile_summary.hpp"

namespace gputrain::train {

class ProfileRange {
 public:
  explicit ProfileRange(const char* name) : range_(at::RecordScope::USER_SCOPE) {
    if (range_.isActive()) range_.before(name);
  }

 private:
  at::RecordFunction range_;
};

}  // namespace gputrain::train

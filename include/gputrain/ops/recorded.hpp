// A forward pass whose operators are recorded, to be written for other programs.
#pragma once

namespace gputrain::ops {

/// While it exists, operators that this thread calls are recorded. They then call ATen's functions alone, which read no
/// value of a tensor and write over no part of one, and are the same functions for any number of samples and tokens.
class RecordedScope {
 public:
  RecordedScope() noexcept;
  RecordedScope(const RecordedScope&) = delete;
  RecordedScope& operator=(const RecordedScope&) = delete;
  ~RecordedScope();

 private:
  bool before_;
};

bool is_recorded() noexcept;

}  // namespace gputrain::ops

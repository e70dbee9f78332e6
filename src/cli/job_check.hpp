// The whole check of a job by a process that is spared LibTorch, whose users describe a part of the keys: another one
// of this program does it, `gputrain validate`, and says what is wrong.
#pragma once

#include <optional>
#include <utility>

#include "gputrain/job/job_start.hpp"

namespace gputrain::app {

class JobCheck {
 public:
  explicit JobCheck(JobRequest job) : job_(std::move(job)) {}

  /// The part that this process can check. Where that is wrong, everything that is wrong has been said: empty.
  std::optional<JobStart> read();

  /// Whether the whole job is right. What is wrong has been said on stderr.
  bool passes();
  bool is_done() const noexcept { return exit_code_.has_value(); }
  /// Once it is done; 0: the job is right.
  int exit_code() const { return exit_code_.value(); }

 private:
  JobRequest job_;
  std::optional<int> exit_code_;
};

}  // namespace gputrain::app

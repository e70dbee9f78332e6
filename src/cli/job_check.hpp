// Check of a whole job in a process that does not load LibTorch. Some keys need LibTorch for their check, so a child
// process does it: `gputrain validate`, which prints the errors.
#pragma once

#include <optional>
#include <utility>

#include "gputrain/job/job_start.hpp"

namespace gputrain::app {

class JobCheck {
 public:
  explicit JobCheck(JobRequest job) : job_(std::move(job)) {}

  /// Returns the part of the job that this process can check; empty if it is wrong. All errors have been printed then.
  std::optional<JobStart> read();

  /// Checks the whole job and returns whether it is valid. The errors are printed to stderr.
  bool passes();
  bool is_done() const noexcept { return exit_code_.has_value(); }
  /// Returns the exit code. Only if is_done(); 0: the job is valid.
  int exit_code() const { return exit_code_.value(); }

 private:
  JobRequest job_;
  std::optional<int> exit_code_;
};

}  // namespace gputrain::app

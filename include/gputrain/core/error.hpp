// The one exception for users: what is wrong, where, what to try, and the exit code.
#pragma once

#include <stdexcept>
#include <string>

namespace gputrain {

/// The exit code of the process. Scripts and agents that start gputrain depend on these values.
enum class ExitCode : int {
  done = 0,           // finished, target met, early stop, `max_time` reached
  internal = 1,       // a bug in gputrain
  usage = 2,          // command line or job spec
  data = 3,           // training data or pretrained weights
  refused = 4,        // diverged, `expect:` missed under --verify, a comparison found differences
  checkpoint = 5,     // cannot save or resume
  environment = 6,    // device, memory, network, libraries
  no_restart = 93,    // do not restart
  interrupted = 130,  // after SIGINT, saved
  restart = 138,      // restart: continues from the newest checkpoint
  terminated = 143,   // after SIGTERM, saved
};

/// Returns whether to start again after an end with this code: the same job may go on from its newest checkpoint.
bool allows_restart(ExitCode code);

/// A mistake of the user or a failure of the machine, in three parts. Never carries a stack trace.
class Error : public std::runtime_error {
 public:
  struct Parts {
    std::string what;        // the fact, one sentence without a final full stop
    std::string where = {};  // "file:line:column", a path, a host; empty when `what` says it
    std::string hint = {};   // what to try; may be empty
  };

  Error(ExitCode code, Parts parts);

  ExitCode code() const noexcept { return code_; }
  const Parts& parts() const noexcept { return parts_; }

 private:
  ExitCode code_;
  Parts parts_;
};

/// An error that another rank reports to the user: this rank exits with the same code and prints nothing.
class ReportedElsewhere : public Error {
 public:
  explicit ReportedElsewhere(const Error& error);
};

/// Throws std::logic_error with place and message, for a programming mistake.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace gputrain

/// Checks internal invariants, never input. A false condition is a bug and ends with exit code 1.
#define GPUTRAIN_ASSERT(condition, message)                                                  \
  do {                                                                                       \
    if (!(condition)) ::gputrain::assertion_failed(#condition, __FILE__, __LINE__, message); \
  } while (false)

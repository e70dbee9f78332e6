// The one exception a user ever sees: what is wrong, where, and what to try, with the exit code it leads to.
#pragma once

#include <stdexcept>
#include <string>

namespace gputrain {

/// The process's exit code; each value is a promise to the scripts and agents that start gputrain.
enum class ExitCode : int {
  done = 0,           // finished, target met, early stop, `max_time` reached
  internal = 1,       // a bug of ours
  usage = 2,          // command line or job spec
  data = 3,           // training data or pretrained weights
  refused = 4,        // diverged, `expect:` missed under --verify, a comparison found something
  checkpoint = 5,     // cannot save or resume
  environment = 6,    // device, memory, network, libraries
  no_restart = 93,    // do not start again
  interrupted = 130,  // SIGINT, saved
  restart = 138,      // start again, saved
  terminated = 143,   // SIGTERM, saved
};

/// A mistake of the user or of the machine, told in three parts. Never carries a stack trace.
class Error : public std::runtime_error {
 public:
  struct Parts {
    std::string what;        // the fact, one sentence without a final full stop
    std::string where = {};  // "file:line:column", a path, a host; empty when `what` says it
    std::string hint = {};   // what to try; empty when there is nothing sensible to say
  };

  Error(ExitCode code, Parts parts);

  ExitCode code() const noexcept { return code_; }
  const Parts& parts() const noexcept { return parts_; }

 private:
  ExitCode code_;
  Parts parts_;
};

/// What another rank of the job tells the user: this one ends with the same code, in silence.
class ToldElsewhere : public Error {
 public:
  explicit ToldElsewhere(const Error& error);
};

/// Throws std::logic_error with place and message: a programmer's mistake.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace gputrain

/// For invariants of ours, never for input: a false condition is a bug and ends in exit code 1.
#define GPUTRAIN_ASSERT(condition, message)                                                  \
  do {                                                                                       \
    if (!(condition)) ::gputrain::assertion_failed(#condition, __FILE__, __LINE__, message); \
  } while (false)

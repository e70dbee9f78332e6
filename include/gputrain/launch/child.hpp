// A child process in its own process group, with pipes to its streams; by default it does not outlive us.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace gputrain::launch {

/// A change of a process: it has ended, stopped or gone on.
struct ProcessStatus {
  enum class Kind { exited, killed, stopped, continued };
  Kind kind = Kind::exited;
  int number = 0;  // exit code or signal

  bool is_end() const noexcept { return kind == Kind::exited || kind == Kind::killed; }
  bool went_well() const noexcept { return kind == Kind::exited && number == 0; }
};

/// Returns "SIGKILL (killed)", "SIGSEGV (segmentation fault)"
std::string signal_text(int signal);

class Child {
 public:
  struct Options {
    std::vector<std::string> argv;         // argv[0] without a slash is looked up in PATH
    std::vector<std::string> environment;  // "NAME=value"; the complete environment
    bool has_input = false;                // stdin is a pipe, else /dev/null
    bool dies_with_us = true;              // by SIGKILL, however this process ends
  };

  /// Starts it. Call from the main thread only: the kernel ties a child's death to the thread that created it. Throws
  /// Error(environment) when the system has no process or pipe left.
  explicit Child(const Options& options);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();  // kills what is left of the group

  pid_t id() const noexcept { return id_; }
  bool is_running() const noexcept { return id_ > 0; }
  /// Returns the ends of its pipes; the caller closes them.
  int take_input() noexcept;
  int take_output() noexcept;
  int take_errors() noexcept;

  /// Returns what happened to it since the last call, if anything. Once it has ended, kills the rest of its group.
  std::optional<ProcessStatus> look();
  /// Returns whether it has ended, even before look() reports that.
  bool has_ended() const;
  /// Sends a signal to the whole group.
  void signal(int number) const;

 private:
  pid_t id_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
};

}  // namespace gputrain::launch

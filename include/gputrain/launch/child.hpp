// A child process in a process group of its own, with pipes to its streams, that does not outlive us.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace gputrain::launch {

/// What has become of a process.
struct Fate {
  enum class Kind { exited, killed, stopped, continued };
  Kind kind = Kind::exited;
  int number = 0;  // exit code or signal

  bool is_end() const noexcept { return kind == Kind::exited || kind == Kind::killed; }
  bool went_well() const noexcept { return kind == Kind::exited && number == 0; }
};

/// "SIGKILL (killed)", "SIGSEGV (segmentation fault)"
std::string signal_text(int signal);

class Child {
 public:
  struct Options {
    std::vector<std::string> argv;         // the program is looked for in PATH when its name has no slash
    std::vector<std::string> environment;  // "NAME=value": all of it
    bool has_input = false;                // a pipe to stdin, else /dev/null
    bool dies_with_us = true;              // by SIGKILL, however this process ends
  };

  /// Starts it. Only from the main thread: the kernel ties a child's death to the thread that made it. Throws
  /// Error(environment) when there are no processes or pipes left.
  explicit Child(const Options& options);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();  // kills what is left of the group

  pid_t id() const noexcept { return id_; }
  bool is_running() const noexcept { return id_ > 0; }
  /// The ends of its pipes; the caller closes them.
  int take_input() noexcept;
  int take_output() noexcept;
  int take_errors() noexcept;

  /// What has happened to it since the last call, if anything. Once it has ended, what it left in its group is killed.
  std::optional<Fate> look();
  /// Whether its end waits to be seen by look().
  bool has_ended() const;
  /// To the whole group.
  void signal(int number) const;

 private:
  pid_t id_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
};

}  // namespace gputrain::launch

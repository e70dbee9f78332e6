// The user's stdout and stderr. A blocked terminal (Ctrl-S, a pager) must not block the run.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "gputrain/core/lines.hpp"
#include "gputrain/core/poll.hpp"

namespace gputrain::launch {

class Terminal {
 public:
  /// `says_on_errors`: the launcher's own lines go to stderr, because stdout is the result of the ranks' command.
  explicit Terminal(bool says_on_errors) : says_on_errors_(says_on_errors) {}
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  /// Drops what cannot be written within two seconds.
  ~Terminal();

  /// Prints a line of the launcher, with its label in the first column.
  void say(const std::string& text) { (says_on_errors_ ? errors_ : output_).insist("launch  " + text); }
  /// Prints several lines on stderr.
  void page(std::string_view text) { errors_.insist(text.substr(0, text.find_last_not_of('\n') + 1)); }
  /// Prints a line of a rank.
  void pass_on(int rank, std::string_view text, bool is_error);

  void add_to(Poll& poll) const;
  void flush();

 private:
  bool says_on_errors_;
  LineWriter output_{::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0), size_t{4} << 20},
      errors_{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0), size_t{4} << 20};
};

}  // namespace gputrain::launch

// The user's stdout and stderr. A terminal that is held up (Ctrl-S, a pager) must not hold up the run.
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
  /// Whatever was not written within two seconds of the end is dropped.
  ~Terminal();

  /// A line of the launcher's own, with its label in the first column.
  void say(const std::string& text) { output_.insist("launch  " + text); }
  /// Several lines on stderr.
  void page(std::string_view text) { errors_.insist(text.substr(0, text.find_last_not_of('\n') + 1)); }
  /// A line of a rank.
  void pass_on(int rank, std::string_view text, bool is_error);

  void add_to(Poll& poll) const;
  void flush();

 private:
  LineWriter output_{::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0), size_t{4} << 20},
      errors_{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0), size_t{4} << 20};
};

}  // namespace gputrain::launch

// What a person sees: plain lines on stdout and, on a terminal only, one redrawn status line below them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string_view>

namespace gputrain::monitor {

/// Columns of the terminal that stdout is; 80 where it is none.
size_t terminal_width();

class Console {
 public:
  struct Options {
    bool enabled = true;  // false on ranks other than 0: prints nothing
    bool redraw = false;  // stdout is a terminal
    bool colour = false;  // stdout is a terminal and NO_COLOR is unset or empty
    size_t columns = 0;   // of the terminal; 0: not known, and lines are not broken
  };

  /// Looks at stdout and the environment (NO_COLOR, TERM).
  static Options detect(bool enabled);

  explicit Console(Options options);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  // What is printed goes through printable(): names of files, and what a model writes, are anything.

  /// A line of its own: `label` in the first column ("model", "eval"), bold on a terminal, and broken to its width.
  /// Also goes to the log.
  void line(std::string_view label, std::string_view text);
  /// Text in its own lines (a sample of the model), on stdout and, as it is, in the log.
  void block(std::string_view text);
  /// Replaces the status line, at most ten times a second; nothing unless stdout is a terminal.
  void status(std::string_view text);
  void clear_status();

 private:
  Options options_;
  std::atomic<bool> status_shown_ = false;  // any thread's warning clears the line
  std::chrono::steady_clock::time_point last_status_{};
};

}  // namespace gputrain::monitor

// Console output: lines on stdout and, only on a terminal, one status line that is redrawn below them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace gputrain::monitor {

/// Returns the width of the terminal in columns; 80 if it is unknown.
size_t terminal_width();

class Console {
 public:
  struct Options {
    bool enabled = true;  // false on ranks other than 0: prints nothing
    bool redraw = false;  // stdout is a terminal
    bool colour = false;  // stdout is a terminal and NO_COLOR is unset or empty
    size_t columns = 0;   // terminal width; 0: unknown, lines are not wrapped
  };

  /// Reads the options from stdout and the environment (NO_COLOR, TERM).
  static Options detect(bool enabled);

  explicit Console(Options options);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  // Output goes through printable(), because file names and model samples may contain any bytes.

  /// Prints one line and logs it. `label` ("model", "eval") is the first column, bold on a terminal; text wraps.
  void line(std::string_view label, std::string_view text);
  /// Prints a line without logging it.
  void show(std::string_view label, std::string_view text);
  /// Pads `label` to the width of the first column, and a space.
  static std::string labelled(std::string_view label);
  /// Prints text on its own lines (a model sample) and logs it unchanged.
  void block(std::string_view text);
  /// Replaces the status line, at most ten times a second. Does nothing if stdout is not a terminal.
  void status(std::string_view text);
  void clear_status();

 private:
  Options options_;
  std::atomic<bool> status_shown_ = false;  // a warning from any thread clears the line
  std::chrono::steady_clock::time_point last_status_{};
};

}  // namespace gputrain::monitor

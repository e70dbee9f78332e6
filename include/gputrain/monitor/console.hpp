// Console output: lines on stdout and, only on a terminal, one status line that is redrawn below them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gputrain/monitor/columns.hpp"

namespace gputrain::monitor {

/// Returns the width of the terminal in columns; 80 if it is unknown.
size_t terminal_width();

class Console {
 public:
  struct Options {
    bool enabled = true;   // false on ranks other than 0: prints nothing
    bool redraw = false;   // stdout is a terminal
    bool colour = false;   // stdout is a terminal and NO_COLOR is unset or empty
    size_t columns = 0;    // terminal width; 0: unknown, lines are not wrapped
    bool unicode = false;  // the terminal shows UTF-8
  };

  /// Reads the options from stdout and the environment (NO_COLOR, TERM, LC_ALL, LC_CTYPE, LANG).
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
  /// Prints a line without logging it; leaves out columns for which the terminal has no room.
  void show(std::string_view label, const std::vector<Column>& columns);
  /// Prints and logs a command for a shell, and what it does. It can be copied where it takes several lines, too.
  void command(std::string_view label, const std::string& command, const std::string& remark = {});
  /// Prints text in one line, with its spaces and signs for line ends and tabs, and logs it unchanged. "..." stands for
  /// what is too long for the terminal (else for 80 columns).
  void short_line(std::string_view label, std::string_view text);
  /// Pads `label` to the width of the first column, and a space.
  static std::string labelled(std::string_view label);
  /// Prints text on its own lines (a model sample) and logs it unchanged.
  void block(std::string_view text);

  /// Replace the status line, at most ten times a second. Do nothing if stdout is not a terminal. An Activity replaces
  /// it by itself once it has gone on for a second.
  void status(std::string_view text);
  void status(const LiveLine& line);
  void clear_status();

 private:
  size_t width() const;
  void print(std::string_view label, const std::string& lines);
  bool may_redraw();
  void draw(const std::string& text);
  void erase();
  std::string text_of(const LiveLine& line) const;
  void show_activities();

  Options options_;
  std::mutex mutex_;  // guards stdout and what follows
  std::atomic<bool> status_shown_ =
      false;  // a warning of any thread clears the line, and waits for nobody if there is none
  std::chrono::steady_clock::time_point last_status_{};
  bool is_ending_ = false;
  std::condition_variable ends_;
  std::thread activities_;  // last; none without a terminal
};

}  // namespace gputrain::monitor

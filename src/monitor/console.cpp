#include "gputrain/monitor/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/activity.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/secrets.hpp"
#include "gputrain/core/wrap.hpp"
#include "gputrain/device/thread.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::monitor {
namespace {

Console* active_console = nullptr;  // the log clears its status line before it writes to stderr

/// Returns 0 if there is no terminal, and on a pseudo-terminal without a size, as under mpirun.
size_t known_terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/// Returns whether the locale is one of UTF-8: the first of these variables that is set names it.
bool has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale(value);
    return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return false;
}

std::string_view colour_of(std::string_view label) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kColours{{{"eval", "1;36"},
                                                                                   {"test", "1;36"},
                                                                                   {"result", "1;36"},
                                                                                   {"done", "1;32"},
                                                                                   {"end", "1;31"},
                                                                                   {"next", "1;33"},
                                                                                   {"slow", "1;33"},
                                                                                   {"alert", "1;31"}}};
  const auto found = std::ranges::find(kColours, label, &std::pair<std::string_view, std::string_view>::first);
  return found == kColours.end() ? "1" : found->second;
}

/// Returns the line of an activity: what it is, how much of it is done, and how long it has gone on and will.
LiveLine line_of(const Activity::Seen& seen) {
  constexpr double kLeastShare = 0.02;  // that tells how long the rest takes
  LiveLine line{.label = seen.label, .share = seen.share, .columns = {}};
  if (seen.share) line.columns.push_back({fmt::format("{:3.0f}%", std::floor(100 * *seen.share))});
  line.columns.push_back({.text = printable(seen.text), .dispensable = 1});
  line.columns.push_back({duration(seen.seconds), 6});
  if (seen.share && *seen.share >= kLeastShare)
    line.columns.push_back({"eta " + duration(seen.seconds * (1 - *seen.share) / *seen.share), 10});
  return line;
}

}  // namespace

size_t terminal_width() {
  const size_t known = known_terminal_width();
  return known > 0 ? known : 80;
}

Console::Options Console::detect(bool enabled) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool terminal = isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
  const bool plain = no_colour != nullptr && *no_colour != '\0';
  return {.enabled = enabled,
          .redraw = terminal,
          .colour = terminal && !plain,
          .columns = known_terminal_width(),
          .unicode = has_utf8()};
}

Console::Console(Options options) : options_(options) {
  active_console = this;
  log::set_before_stderr([] {
    if (active_console != nullptr) active_console->clear_status();
  });
  if (options_.enabled && options_.redraw)
    activities_ = device::start_thread("live line", [this] { show_activities(); });
}

Console::~Console() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ends_.notify_all();
  if (activities_.joinable()) activities_.join();
  clear_status();
  active_console = nullptr;
}

/// Returns the present width of the terminal, whose user may change it; 0: unknown.
size_t Console::width() const {
  const size_t now = options_.redraw ? known_terminal_width() : 0;
  return now > 0 ? now : options_.columns;
}

std::string Console::labelled(std::string_view label) {
  return std::string(label) + std::string(label.size() < 7 ? 7 - label.size() : 0, ' ') + " ";
}

void Console::line(std::string_view label, std::string_view text) {
  log::info(labelled(label) + std::string(text));
  show(label, text);
}

void Console::show(std::string_view label, std::string_view text) {
  if (!options_.enabled) return;
  const size_t indent = labelled(label).size(), columns = width();
  std::string lines = printable(without_url_secrets(text), "\n");
  if (columns > 0) lines = wrapped(lines, std::max(columns, indent + 20) - indent, indent);
  print(label, lines);
}

void Console::show(std::string_view label, const std::vector<Column>& columns) {
  if (!options_.enabled) return;
  const size_t indent = labelled(label).size(), most = width();
  print(label, joined(fitted(columns, most > 0 ? std::max(most, indent + 1) - indent : 0), options_.colour));
}

void Console::command(std::string_view label, const std::string& command, const std::string& remark) {
  const std::string behind = remark.empty() ? "" : "  # " + remark;
  log::info(labelled(label) + command + behind);
  if (!options_.enabled) return;
  const size_t indent = labelled(label).size(), columns = width();
  const bool fits = columns == 0 || indent + command.size() + behind.size() <= columns;
  if (fits) return print(label, printable(command) + behind);
  constexpr std::string_view kContinued = " \\";
  const bool is_quoted = command.find('\'') != std::string::npos;  // a break inside quotes would belong to the word
  const size_t room = std::max(columns, indent + 20) - indent;
  std::string lines = printable(command);
  if (!is_quoted && lines.size() > room) lines = wrapped(lines, room - kContinued.size(), indent);
  for (size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; at += 1 + kContinued.size())
    lines.insert(at, kContinued);
  if (!remark.empty()) lines += "\n" + std::string(indent, ' ') + wrapped("# " + remark, room, indent);
  print(label, lines);
}

void Console::print(std::string_view label, const std::string& lines) {
  const std::string first = labelled(label);
  const std::string text =
      coloured(first.substr(0, first.size() - 1), options_.colour ? colour_of(label) : "") + " " + lines + "\n";
  const std::lock_guard lock(mutex_);
  erase();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Console::short_line(std::string_view label, std::string_view text) {
  const std::string first = labelled(label);
  log::info(first + std::string(text));
  if (!options_.enabled) return;
  const size_t columns = width(), room = std::max(columns > 0 ? columns : 80, first.size() + 20) - first.size();
  print(label, cut_to(printable(in_one_line(without_url_secrets(text), options_.unicode)), room));
}

void Console::block(std::string_view text) {
  log::info(text);
  if (!options_.enabled) return;
  std::string lines(text);
  for (size_t at = 0; (at = lines.find("\r\n", at)) != std::string::npos;) lines.erase(at, 1);
  lines = printable(lines, "\n\t") + "\n";
  const std::lock_guard lock(mutex_);
  erase();
  std::fwrite(lines.data(), 1, lines.size(), stdout);
  std::fflush(stdout);
}

void Console::status(std::string_view text) {
  if (!options_.enabled || !options_.redraw) return;
  const std::lock_guard lock(mutex_);
  const size_t columns = width();
  if (may_redraw()) draw(std::string(text.substr(0, (columns > 0 ? columns : 80) - 1)));
}

void Console::status(const LiveLine& line) {
  if (!options_.enabled || !options_.redraw) return;
  const std::lock_guard lock(mutex_);
  if (may_redraw()) draw(text_of(line));
}

/// Returns whether the status line is old enough to be replaced. The caller holds the mutex.
bool Console::may_redraw() {
  const auto now = std::chrono::steady_clock::now();
  if (status_shown_ && now - last_status_ < std::chrono::milliseconds(100)) return false;
  last_status_ = now;
  return true;
}

/// Lays out a live line with a bar that fills what its columns leave.
std::string Console::text_of(const LiveLine& line) const {
  constexpr size_t kLeastBar = 8, kMostBar = 30;
  const std::string label = labelled(line.label);
  const size_t columns = width();
  const size_t all = std::max((columns > 0 ? columns : 80) - 1, label.size() + 1) - label.size();
  const size_t least = line.share && all > 3 * kLeastBar ? kLeastBar + 1 : 0;
  const std::vector<Column> shown = fitted(line.columns, all - least);
  const std::string begin = coloured(label.substr(0, label.size() - 1), options_.colour ? colour_of(line.label) : "");
  const std::string end = " " + joined(shown, options_.colour);
  if (least == 0 || width_of(shown) + least > all) return begin + end;
  const size_t room = std::min(kMostBar, all - width_of(shown) - 1);
  return begin + " " + coloured(bar(*line.share, room, options_.unicode), options_.colour ? "32" : "") + end;
}

void Console::draw(const std::string& text) {
  status_shown_ = true;
  std::printf("\r\x1b[2K%s", text.c_str());
  std::fflush(stdout);
}

void Console::erase() {
  if (!status_shown_.exchange(false)) return;
  std::printf("\r\x1b[2K");
  std::fflush(stdout);
}

/// Does not wait for a line that another thread writes, perhaps to a full pipe, where no status line is shown.
void Console::clear_status() {
  if (!status_shown_) return;
  const std::lock_guard lock(mutex_);
  erase();
}

/// Shows what goes on for more than a second, until this console ends.
void Console::show_activities() {
  constexpr double kLeastSeconds = 1;
  constexpr std::chrono::milliseconds kBetweenLooks{200};
  bool was_shown = false;
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kBetweenLooks, [this] { return is_ending_; })) {
    const auto seen = Activity::newest(kLeastSeconds);
    if (seen)
      draw(text_of(line_of(*seen)));
    else if (was_shown)
      erase();
    was_shown = seen.has_value();
  }
}

}  // namespace gputrain::monitor

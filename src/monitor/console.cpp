#include "gputrain/monitor/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gputrain/core/log.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/secrets.hpp"
#include "gputrain/core/wrap.hpp"

namespace gputrain::monitor {
namespace {

Console* active_console = nullptr;  // the log clears its status line before it writes to stderr

void write_line(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

/// Returns 0 if there is no terminal, and on a pseudo-terminal without a size, as under mpirun.
size_t known_terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
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
  return {.enabled = enabled, .redraw = terminal, .colour = terminal && !plain, .columns = known_terminal_width()};
}

Console::Console(Options options) : options_(options) {
  active_console = this;
  log::set_before_stderr([] {
    if (active_console != nullptr) active_console->clear_status();
  });
}

Console::~Console() {
  clear_status();
  active_console = nullptr;
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
  clear_status();
  const std::string first = labelled(label);
  std::string lines = printable(without_url_secrets(text), "\n");
  if (options_.columns > 0) {
    lines = wrapped(lines, std::max(options_.columns, first.size() + 20) - first.size(), first.size());
  }
  const std::string padded = first.substr(0, first.size() - 1);
  write_line((options_.colour ? "\x1b[1m" + padded + "\x1b[0m" : padded) + " " + lines);
}

void Console::block(std::string_view text) {
  log::info(text);
  if (!options_.enabled) return;
  clear_status();
  std::string lines(text);
  for (size_t at = 0; (at = lines.find("\r\n", at)) != std::string::npos;) lines.erase(at, 1);
  write_line(printable(lines, "\n\t"));
}

void Console::status(std::string_view text) {
  if (!options_.enabled || !options_.redraw) return;
  const auto now = std::chrono::steady_clock::now();
  if (status_shown_ && now - last_status_ < std::chrono::milliseconds(100)) return;
  last_status_ = now;
  status_shown_ = true;
  const size_t length = std::min(text.size(), terminal_width() - 1);
  std::printf("\r\x1b[2K%.*s", static_cast<int>(length), text.data());
  std::fflush(stdout);
}

void Console::clear_status() {
  if (!status_shown_.exchange(false)) return;
  std::printf("\r\x1b[2K");
  std::fflush(stdout);
}

}  // namespace gputrain::monitor

// Command `gputrain top`: shows a run in the terminal.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/monitor/console.hpp"
#include "run_state.hpp"
#include "top_page.hpp"
#include "top_sweep.hpp"

namespace gputrain::app {
namespace {

TopSize terminal_size() {
  TopSize size;
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
    size = {.columns = window.ws_col, .rows = window.ws_row};
  size.colour = monitor::Console::detect(true).colour;
  return size;
}

/// Returns the page of a run or a sweep.
SweepPage page_of(const std::string& folder, const TopSize& size) {
  if (is_sweep(folder)) return sweep_page(folder, size);
  const nlohmann::json state = state_of_any(folder);
  return {.lines = top_page(state, size), .goes_on = !state.contains("has_ended")};
}

void print(const std::vector<std::string>& lines, const char* before, const char* after) {
  std::string text = before;
  for (size_t i = 0; i < lines.size(); ++i) text += lines[i] + after + (i + 1 < lines.size() ? "\n" : "");
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// Waits a second. Returns whether a signal ended it.
bool is_ended(const SignalReader& signals) {
  Poll poll;
  poll.add(signals.descriptor());
  poll.wake_at(Clock::now() + std::chrono::seconds(1));
  poll.wait();
  return poll.is_ready(signals.descriptor());
}

}  // namespace

int top_command(const TopCommand& command) try {
  SweepPage page = page_of(command.run, terminal_size());
  if (command.once || ::isatty(STDOUT_FILENO) == 0 || !page.goes_on) {
    print(page.lines, "", "");
    std::puts("");
    return 0;
  }
  const SignalReader signals{SIGINT, SIGTERM};
  std::fputs("\x1b[?1049h\x1b[?25l", stdout);  // switches to another screen, without a cursor
  std::string end;
  try {
    do {
      print(page.lines, "\x1b[H", "\x1b[K");
      std::fputs("\x1b[J", stdout);
      if (is_ended(signals)) break;
      page = page_of(command.run, terminal_size());
    } while (page.goes_on);
  } catch (const Error& failure) {
    end = failure.parts().what;
  } catch (const nlohmann::json::exception&) {
    end = "what it says is no state of a run";
  }
  std::fputs("\x1b[?25h\x1b[?1049l", stdout);
  if (!end.empty()) std::printf("the run does not answer any more: %s\n", end.c_str());
  if (!page.goes_on) {
    print(page.lines, "", "");
    std::puts("");
  }
  return 0;
} catch (const nlohmann::json::exception&) {  // a field has another type
  refuse_other_server(command.run);
}

}  // namespace gputrain::app

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

void print(const nlohmann::json& state, const TopSize& size, const char* before, const char* after) {
  std::string text = before;
  const auto lines = top_page(state, size);
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
  nlohmann::json state = state_of(command.run);
  if (command.once || ::isatty(STDOUT_FILENO) == 0) {
    print(state, terminal_size(), "", "");
    std::puts("");
    return 0;
  }
  const SignalReader signals{SIGINT, SIGTERM};
  std::fputs("\x1b[?1049h\x1b[?25l", stdout);  // switches to another screen, without a cursor
  std::string end;
  try {
    do {
      print(state, terminal_size(), "\x1b[H", "\x1b[K");
      std::fputs("\x1b[J", stdout);
      if (is_ended(signals)) break;
      state = state_of(command.run);
    } while (true);
  } catch (const Error& failure) {
    end = failure.parts().what;
  } catch (const nlohmann::json::exception&) {
    end = "what it says is no state of a run";
  }
  std::fputs("\x1b[?25h\x1b[?1049l", stdout);
  if (!end.empty()) std::printf("the run does not answer any more: %s\n", end.c_str());
  return 0;
} catch (const nlohmann::json::exception&) {  // a field has another type
  refuse_other_server(command.run);
}

}  // namespace gputrain::app

// Command `gputrain top`: shows a run, a sweep or the runs of a folder in the terminal.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/inspect/ckpt_folder.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "run_state.hpp"
#include "top_page.hpp"
#include "top_runs.hpp"
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

/// Returns the folder of that path, as the paths of its runs begin.
std::filesystem::path folder_at(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

/// Returns the page of a run, a sweep or the runs of a folder.
TopPage page_of(const std::string& folder, const TopSize& size) {
  if (is_sweep(folder)) return sweep_page(folder, size);
  const bool is_run = exists(RunFolder{folder}.resolved());
  if (!is_run && !runs_in(folder).empty()) return runs_page(folder_at(folder), size);
  const nlohmann::json state = state_of_any(folder);
  return {.lines = top_page(state, size), .goes_on = !state.contains("has_ended")};
}

void print(const std::vector<std::string>& lines, const char* before, const char* after) {
  std::string text = before;
  for (size_t i = 0; i < lines.size(); ++i) text += lines[i] + after + (i + 1 < lines.size() ? "\n" : "");
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void print_rows(const std::string& folder) {
  nlohmann::ordered_json document;
  document["runs"] = listed_runs(folder_at(folder));
  if (document["runs"].empty()) {
    throw Error(ExitCode::usage, {.what = "there is no run in this folder",
                                  .where = folder,
                                  .hint = "--json takes the folder of a run, of a sweep or of runs"});
  }
  print_json(document);
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
  if (command.json) return print_rows(command.run), 0;
  TopPage page = page_of(command.run, terminal_size());
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
      page.lines.resize(std::min(page.lines.size(), terminal_size().rows));
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

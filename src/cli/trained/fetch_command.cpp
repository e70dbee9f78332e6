// Command `gputrain fetch`: fetches a published model into the Hugging Face cache.
#include <algorithm>
#include <chrono>
#include <string>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/hub/fetch.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

using Clock = std::chrono::steady_clock;

hub::ModelName model_of(const FetchCommand& command) {
  auto model = hub::model_name(command.name);
  if (model && !command.revision.empty()) {
    const bool has_two = command.name.find('@') != std::string::npos;
    model = has_two ? std::nullopt : hub::model_name(command.name + "@" + command.revision);
  }
  if (model) return *model;
  const std::string revision = command.revision.empty() ? "" : " --revision " + command.revision;
  throw Error(ExitCode::usage, {.what = "this names no model of the Hugging Face Hub: " + command.name + revision,
                                .hint = "gputrain fetch Qwen/Qwen3-0.6B"});
}

/// Status line: progress and speed of a file.
class Status {
 public:
  explicit Status(monitor::Console& console) : console_(console) {}

  void show(const hub::FetchProgress& progress) {
    if (progress.file != file_) {
      file_ = progress.file;
      begin_ = Clock::now();
      received_before_ = progress.received;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    std::string text = file_ + "  " + monitor::bytes(progress.received);
    if (progress.size > 0) {
      text += " of " + monitor::bytes(progress.size) + "  " +
              std::to_string(static_cast<int>(100.0 * static_cast<double>(progress.received) /
                                              static_cast<double>(progress.size))) +
              "%";
    }
    const auto here = static_cast<double>(progress.received - std::min(progress.received, received_before_));
    if (seconds > 1) text += "  " + monitor::bytes(here / seconds) + "/s";
    console_.status(text);
  }

 private:
  monitor::Console& console_;
  std::string file_;
  Clock::time_point begin_;
  uint64_t received_before_ = 0;
};

void report(monitor::Console& console, const FetchCommand& command, const hub::Fetching& how,
            const hub::Fetched& fetched) {
  uint64_t all = 0, came = 0;
  bool has_weights = false;
  for (const hub::FetchedFile& file : fetched.files) {
    all += file.bytes;
    if (!file.was_here) came += file.bytes;
    has_weights = has_weights || file.name.ends_with(".safetensors");
  }
  console.show("fetch", command.name + "  " + counted(std::ssize(fetched.files), "file") + ", " + monitor::bytes(all) +
                            "; " +
                            (came > 0              ? monitor::bytes(came) + " of them now"
                             : how.offline.empty() ? "all were here"
                                                   : "the cache's, because " + how.offline + " is set"));
  console.show("folder", fetched.snapshot.string());
  if (!has_weights && !command.no_weights) {
    log::warning(command.name +
                 " has no weights in safetensors, the only format that is read: the files that describe it came alone");
  }
}

}  // namespace

int fetch_command(const FetchCommand& command) {
  monitor::Console console(monitor::Console::detect(true));
  Status status(console);
  auto how = hub::fetching_from_environment(model_of(command), hub::environment_variable);
  how.takes_weights = !command.no_weights;
  how.on_progress = [&](const hub::FetchProgress& progress) { status.show(progress); };
  how.retrying.on_trouble = [&](const std::string& text) { console.status(text); };
  const hub::Fetched fetched = hub::fetch(how);
  console.clear_status();
  report(console, command, how, fetched);
  return 0;
}

}  // namespace gputrain::app

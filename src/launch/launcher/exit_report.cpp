#include "exit_report.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>

#include "gputrain/core/error.hpp"

namespace gputrain::launch {
namespace {

constexpr int kRestart = static_cast<int>(ExitCode::restart);

std::string line(const char* label, const std::string& text) {
  std::string padded = label;
  padded.resize(7, ' ');
  return padded + " " + text + "\n";
}

std::string meaning_of(int code) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::internal:
      return "internal error";
    case ExitCode::usage:
      return "job or command line";
    case ExitCode::data:
      return "data";
    case ExitCode::refused:
      return "result refused";
    case ExitCode::checkpoint:
      return "checkpoint";
    case ExitCode::environment:
      return "environment or memory";
    case ExitCode::no_restart:
      return "do not start again";
    case ExitCode::restart:
      return "start again";
    case ExitCode::interrupted:
      return "interrupted, saved";
    case ExitCode::terminated:
      return "terminated, saved";
    default:
      return "not a code of gputrain";
  }
}

std::string advice_for(const Cause& cause, int code, const RunState& state, bool measures) {
  const std::string again = measures ? state.again + " measures again"
                            : state.checkpoint_step
                                ? state.again + " goes on " + resume_text(state)
                                : "the same command starts over (set checkpoint.interval to lose less)";
  if (cause.kind == Cause::Kind::host_lost)
    return "check " + cause.host + ", or go on without it (--nnodes MIN:MAX); " + again;
  if (cause.kind == Cause::Kind::rank_hangs) return "`gputrain launch` ends ranks that hang; " + again;
  if (cause.kind == Cause::Kind::rank_ended && cause.end.status.kind == ProcessStatus::Kind::killed) {
    if (cause.end.status.number == SIGKILL)
      return "if nobody killed it, use less memory (train.micro_batch_size, ranks per host); " + again;
    return "a crash inside the program is a bug: please report it with the log; " + again;
  }
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::usage:
      return "fix the job or the command; the message of the rank says how";
    case ExitCode::data:
      return "fix the data; the message of the rank says what is wrong";
    case ExitCode::checkpoint:
      return "free disk space or repair the disk, then " + again;
    case ExitCode::environment:
      return "the message of the rank says what to change; then " + again;
    case ExitCode::refused:
    case ExitCode::no_restart:
      return "the message of the rank says why a restart would not help";
    default:
      return again;
  }
}

}  // namespace

std::string Cause::text() const {
  if (kind == Kind::host_lost) return "the host " + host + " is lost: " + story;
  if (kind == Kind::not_started) return "the ranks on " + host + " did not start: " + story;
  const std::string who =
      "rank " + std::to_string(end.rank) + " on " + host + " (process " + std::to_string(end.process) + ")";
  if (kind == Kind::rank_hangs) return "rank " + std::to_string(end.rank) + " on " + host + " " + story;
  if (end.status.kind == ProcessStatus::Kind::killed) return who + " was killed by " + signal_text(end.status.number);
  return who + " ended with exit code " + std::to_string(end.status.number) + " (" + meaning_of(end.status.number) +
         ")";
}

int Cause::exit_code() const {
  if (kind == Kind::not_started) return static_cast<int>(ExitCode::environment);
  const bool has_code = kind == Kind::rank_ended && end.status.kind == ProcessStatus::Kind::exited;
  return has_code ? end.status.number : kRestart;
}

bool Cause::is_reported() const {
  return std::ranges::any_of(end.tail, [](const std::string& line) {
    return line.find("error: ") != std::string::npos || line.find(" mistake") != std::string::npos;
  });
}

bool Cause::allows_restart() const {
  constexpr int kNoSuchProgram = 127;
  return exit_code() != kNoSuchProgram && gputrain::allows_restart(static_cast<ExitCode>(exit_code()));
}

std::optional<Cause> cause_of(const RankEnd& end, const std::string& host) {
  const int number = end.status.number;
  if (end.status.kind == ProcessStatus::Kind::killed) {
    if (end.killed_by_us) return std::nullopt;
    const auto weight = end.was_told ? Cause::Weight::had_been_told : Cause::Weight::by_itself;
    return Cause{.host = host, .story = {}, .end = end, .weight = weight};
  }
  const bool is_stop =
      number == static_cast<int>(ExitCode::interrupted) || number == static_cast<int>(ExitCode::terminated);
  if (number == 0 || is_stop) return std::nullopt;
  if (number == kRestart && (end.was_told || !end.tells_error)) return std::nullopt;
  auto weight = end.was_told ? Cause::Weight::had_been_told : Cause::Weight::by_itself;
  if (number == kRestart) weight = Cause::Weight::lost_its_peers;
  return Cause{.host = host, .story = {}, .end = end, .weight = weight};
}

std::string resume_text(const RunState& state) {
  return state.checkpoint_step ? "from step " + std::to_string(*state.checkpoint_step) : "from the start";
}

std::string ExitReport::page() const {
  std::array<char, 32> time{};
  std::snprintf(time.data(), time.size(), "%.1f s", seconds);
  const int code = cause.exit_code();
  std::string page = line("ended", "after " + std::string(time.data()) + "; exit " + std::to_string(code) +
                                       (restarts.empty() ? "" : "; " + restarts));
  page += line("cause", cause.text());
  if (!cause.end.clue.empty()) page += line("", cause.end.clue);
  for (const auto& other : others) page += line("then", other);
  if (!cause.end.tail.empty() && !is_heard) {
    page += line("output", "the last lines of rank " + std::to_string(cause.end.rank) +
                               (cause.end.log.empty() ? "" : ", all of them in " + cause.end.log));
    for (const auto& text : cause.end.tail) page += "        | " + text + "\n";
  }
  const auto step = std::max(state.step, state.checkpoint_step);  // not every step is reported
  if (measures) return page + line("next", advice_for(cause, code, state, measures));
  page += line("state", (step ? "last step " + std::to_string(*step) : "no step was finished") + "; " +
                            (state.checkpoint_step ? "newest checkpoint " + state.checkpoint : "no checkpoint"));
  return page + line("next", advice_for(cause, code, state, measures));
}

}  // namespace gputrain::launch

#include "gputrain/run/alert_watch.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gputrain/core/log.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/device/thread.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

constexpr std::chrono::seconds kBetweenLooks{1};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

AlertWatch::AlertWatch(Parts parts)
    : parts_(std::move(parts)), rules_(parts_.alerts), thread_(device::start_thread("alerts", [this] { run(); })) {}

AlertWatch::~AlertWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void AlertWatch::run() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kBetweenLooks, [this] { return is_ending_; })) look();
}

void AlertWatch::look() {
  std::error_code unknown;
  monitor::Board& board = parts_.board;
  const auto space = std::filesystem::space(parts_.folder, unknown);
  if (!unknown && space.capacity > 0) {
    board.set("disk/free_bytes", static_cast<double>(space.available));
    board.set("disk/free_share", static_cast<double>(space.available) / static_cast<double>(space.capacity));
  }
  note_cost();
  note_ended_programs();
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const auto values = board.values();
  const auto steps = values.find("steps_total");
  const int64_t step = steps == values.end() ? parts_.first_step : static_cast<int64_t>(steps->second.most);
  const auto changes = rules_.look(values, now);
  const auto firing = rules_.firing();
  board.set("alerts_firing", firing.empty() ? 0 : 1);
  board.set_alerts(firing);
  for (const auto& change : changes) act(change, step);
}

/// Shows what the run costs, and with the time that its newest log line expects, what it costs in the end.
void AlertWatch::note_cost() {
  const auto& [per_second, earlier_seconds] = parts_.cost;
  if (per_second <= 0) return;
  const double total = per_second * (earlier_seconds + seconds_since_process_start());
  parts_.board.set("cost_total", total);
  const auto values = parts_.board.values();
  const auto left = values.find("time/left_seconds");
  if (left != values.end() && left->second.most > 0)
    parts_.board.set("cost_expected", total + per_second * left->second.most);
}

void AlertWatch::act(const monitor::AlertRules::Change& change, int64_t step) {
  const std::string text =
      monitor::text_of(change.alert) + ": " + (change.is_firing ? "now " + monitor::significant(change.value) : "over");
  const double epoch = parts_.reporting.plan.epochs_in(step);
  const monitor::Record event{.step = step, .epoch = epoch, .kind = "event", .text = "alert " + text};
  const std::string& action = change.alert.action;
  if (parts_.webhook != nullptr) parts_.webhook->log(event);
  change.is_firing ? log::warning("alert: " + text) : log::info("alert: " + text);
  if (change.is_firing && action == "exec") start_program(change);
  parts_.reporting.recorder.log(event);  // hangs with the disk; a run that hangs there follows no order either
  if (change.is_firing && action != "warn" && action != "exec")
    parts_.control.give({.verb = action, .value = 0, .from = "alert " + monitor::text_of(change.alert)});
}

void AlertWatch::start_program(const monitor::AlertRules::Change& change) {
  std::vector<std::string> argv = change.alert.exec, environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.emplace_back(*variable);
  environment.push_back("GPUTRAIN_ALERT=" + monitor::text_of(change.alert));
  environment.push_back("GPUTRAIN_VALUE=" + std::to_string(change.value));
  environment.push_back("GPUTRAIN_RUN=" + parts_.folder.string());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t id = 0;
  const int error =
      ::posix_spawnp(&id, argv[0].c_str(), nullptr, &attributes, pointers(argv).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (error == 0) {
    programs_.push_back(id);
  } else {
    log::warning("alerts: cannot start " + argv[0] + ": " + std::strerror(error));
  }
}

void AlertWatch::note_ended_programs() {
  std::erase_if(programs_, [](pid_t id) {
    int status = 0;
    if (::waitpid(id, &status, WNOHANG) != id) return false;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
      log::warning("alerts: the program of an alert failed, with " +
                   (WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                                      : "signal " + std::to_string(WTERMSIG(status))));
    return true;
  });
}

}  // namespace gputrain::app

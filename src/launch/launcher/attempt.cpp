#include "attempt.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "gputrain/core/error.hpp"

namespace gputrain::launch {
namespace {

using nlohmann::json;

// A rank stopped for longer ends the attempt. Debuggers and batch systems need less, or must stop the whole job.
constexpr std::chrono::seconds kLongestStop{10};
// A process that SIGKILL does not end hangs in the kernel: after this, give up its host.
constexpr std::chrono::seconds kHopeless{15};
// A rank may end later than others because it finishes a second copy, for ten minutes at most.
constexpr std::chrono::minutes kAfterOthers{11};

}  // namespace

Attempt::Attempt(const LaunchRequest& request, const std::vector<HostLink*>& links, Terminal& terminal)
    : request_(request), terminal_(terminal) {
  for (HostLink* link : links) {
    parts_.push_back({.link = link, .first_rank = world_size_, .ranks = link->ranks()});
    world_size_ += link->ranks();
  }
}

void Attempt::start(const Start& start) {
  start_ = start;
  std::string where;
  for (size_t i = 0; i < parts_.size() && i < 8; ++i) {
    where += (i == 0 ? "" : ", ") + parts_[i].link->name() + ":" + std::to_string(parts_[i].ranks);
  }
  if (parts_.size() > 8) where += ", ...";
  terminal_.say(std::to_string(world_size_) + (world_size_ == 1 ? " rank" : " ranks") + " on " + where +
                "  meeting at " + start.master.address + " port " + std::to_string(start.master.port) + "  start " +
                std::to_string(start.number) + (start.logs.empty() ? "" : "  output " + start.logs));
  const auto command = request_.command();
  int number = 0;
  for (const Part& part : parts_) {
    const StartOrder order{.attempt = start.number,
                           .restarts = start.restarts,
                           .command = command,
                           .environment = request_.environment,
                           .logs = start.logs,
                           .first_rank = part.first_rank,
                           .ranks = part.ranks,
                           .world_size = world_size_,
                           .host_number = number++,
                           .hosts = static_cast<int>(parts_.size()),
                           .master_address = start.master.address,
                           .master_port = start.master.port};
    part.link->send({{"kind", "start"}, {"order", order}});
  }
}

void Attempt::pass_on(int signal) {
  for (const Part& part : parts_) part.link->send({{"kind", "signal"}, {"signal", signal}});
}

void Attempt::ask_to_stop(int signal) {
  pass_on(signal);
  if (std::exchange(stop_signal_, signal) != 0) return;  // the grace period already runs
  const auto grace = std::chrono::duration<double>(request_.grace_seconds);
  grace_ends_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(grace);
}

void Attempt::insist() { end_all(std::chrono::seconds(1)); }

void Attempt::ask_to_grow() {
  grows_ = true;
  ask_to_stop(SIGUSR1);
}

void Attempt::end_all(std::chrono::seconds grace) {
  is_ending_ = true;
  for (const Part& part : parts_) part.link->send({{"kind", "stop"}, {"grace", grace.count()}});
  if (!hopeless_at_) hopeless_at_ = Clock::now() + grace + kHopeless;
}

void Attempt::note(Cause cause) {
  causes_.push_back(std::move(cause));
  if (!is_ending_) end_all(kEndGrace);
}

void Attempt::take(HostLink& link, const json& message) {
  const std::string kind = message.at("kind");
  if (kind == "line") {
    const int rank = message.at("rank").get<int>();
    // After a failure every rank prints its own error; the log files have them.
    if (is_ending_)
      unheard_.insert(rank);
    else
      terminal_.pass_on(rank, message.at("text").get<std::string>(), message.at("is_error").get<bool>());
  } else if (kind == "no_log") {
    terminal_.say("no log can be written on " + link.name() + ": " + message.at("text").get<std::string>());
  } else if (kind == "fate") {
    take_status(link, message);
  } else if (kind == "exit") {
    const auto end = message.at("end").get<RankEnd>();
    stopped_.erase(end.rank);
    ends_[end.rank] = end;
    if (auto cause = cause_of(end, link.name()))
      note(std::move(*cause));
    else if (!grace_ends_)
      grace_ends_ = Clock::now() + kAfterOthers;
  } else if (kind == "problem") {
    note({.kind = Cause::Kind::not_started, .host = link.name(), .story = message.at("text").get<std::string>()});
    link.drop("given up");
  }
}

void Attempt::take_status(const HostLink& link, const json& message) {
  const int rank = message.at("rank").get<int>();
  if (!message.at("stopped").get<bool>()) {
    stopped_.erase(rank);
    return;
  }
  stopped_.try_emplace(rank, Clock::now());
  if (!is_ending_) {
    terminal_.say("rank " + std::to_string(rank) + " on " + link.name() + " was stopped by " +
                  signal_text(message.at("signal").get<int>()) + "; all ranks end unless it continues within " +
                  std::to_string(kLongestStop.count()) + " s");
  }
}

void Attempt::look() {
  const auto now = Clock::now();
  for (Part& part : parts_) {
    if (part.is_lost || part.link->state() == HostLink::State::ready) continue;
    part.is_lost = true;
    if (has_all_ends(part)) continue;
    const bool was_given_up = std::ranges::any_of(causes_, [&](const Cause& cause) {
      return cause.host == part.link->name() && cause.kind == Cause::Kind::not_started;
    });
    if (!was_given_up) note({.kind = Cause::Kind::host_lost, .host = part.link->name(), .story = part.link->loss()});
  }
  for (const auto& [rank, since] : stopped_) {
    if (is_ending_ || now < since + kLongestStop) continue;
    note({.kind = Cause::Kind::rank_hangs,
          .host = host_of(rank),
          .story = "has been stopped for " + std::to_string(kLongestStop.count()) + " s by a signal (SIGSTOP)"});
    causes_.back().end.rank = rank;
  }
  if (grace_ends_ && now >= *grace_ends_ && !is_ending_) note_laggards();
  if (hopeless_at_ && now >= *hopeless_at_) {
    for (Part& part : parts_) {
      if (!has_all_ends(part) && !part.is_lost) part.link->drop("its processes cannot be ended");
    }
  }
}

/// Notes ranks that run for too long after some have ended, or all were asked to.
void Attempt::note_laggards() {
  for (int rank = 0; rank < world_size_; ++rank) {
    if (ends_.contains(rank)) continue;
    note({.kind = Cause::Kind::rank_hangs,
          .host = host_of(rank),
          .story = stop_signal_ != 0 ? "did not end in time (launch.grace), so it was killed"
                                     : "did not end within 11 minutes after other ranks had, so it was killed"});
    causes_.back().end.rank = rank;
  }
}

Clock::time_point Attempt::next_deadline() const {
  auto next = Clock::now() + std::chrono::seconds(60);
  for (const auto& [rank, since] : stopped_) {
    if (!is_ending_) next = std::min(next, since + kLongestStop);
  }
  if (grace_ends_ && !is_ending_) next = std::min(next, *grace_ends_);
  if (hopeless_at_) next = std::min(next, *hopeless_at_);
  return next;
}

bool Attempt::is_over() const {
  return std::ranges::all_of(parts_, [this](const Part& part) { return part.is_lost || has_all_ends(part); });
}

bool Attempt::has_all_ends(const Part& part) const {
  for (int rank = part.first_rank; rank < part.first_rank + part.ranks; ++rank) {
    if (!ends_.contains(rank)) return false;
  }
  return true;
}

const Attempt::Part* Attempt::part_of(int rank) const {
  const auto has_it = [rank](const Part& part) {
    return rank >= part.first_rank && rank < part.first_rank + part.ranks;
  };
  const auto found = std::ranges::find_if(parts_, has_it);
  return found == parts_.end() ? nullptr : &*found;
}

std::string Attempt::host_of(int rank) const {
  const Part* part = part_of(rank);
  return part == nullptr ? "?" : part->link->name();
}

std::vector<HostLink*> Attempt::leaving_hosts() const {
  std::vector<HostLink*> leaving;
  for (const auto& [rank, end] : ends_) {
    const Part* part = part_of(rank);
    if (end.leaves_host && part != nullptr) leaving.push_back(part->link);
  }
  return leaving;
}

void Attempt::blame_who_made_way() {
  for (const auto& [rank, end] : ends_)
    causes_.push_back({.host = host_of(rank), .story = {}, .end = end, .weight = Cause::Weight::lost_its_peers});
}

/// Returns the first cause with the most weight; if that rank printed no error, one with the same code that did.
const Cause* Attempt::main_cause() const {
  const auto most = std::ranges::max_element(causes_, {}, &Cause::weight);
  if (most == causes_.end()) return nullptr;
  if (most->is_reported() || most->allows_restart()) return &*most;
  const auto tells_it = [&](const Cause& cause) {
    return cause.exit_code() == most->exit_code() && cause.is_reported();
  };
  const auto told = std::ranges::find_if(causes_, tells_it);
  return told == causes_.end() ? &*most : &*told;
}

Attempt::Result Attempt::result() const {
  if (const Cause* cause = main_cause()) return {.kind = Kind::failed, .exit_code = cause->exit_code()};
  const int restart = static_cast<int>(ExitCode::restart);
  const auto code_of = [](const RankEnd& end) {
    return end.status.number + (end.status.kind == ProcessStatus::Kind::killed ? 128 : 0);
  };
  int code = 0;
  for (const auto& [rank, end] : ends_) code = std::max(code, code_of(end));
  if (code == 0) return {.kind = Kind::done, .exit_code = 0};
  const bool make_way = std::ranges::all_of(ends_, [&](const auto& end) { return code_of(end.second) == restart; });
  const int wanted = stop_signal_ == 0 ? code : stop_signal_ == SIGUSR1 ? restart : 128 + stop_signal_;
  if (grows_) return {.kind = Kind::grows, .exit_code = wanted};
  // The ranks had agreed to end before our signal came: a cloud notice, or they lost each other.
  if (make_way && stop_signal_ != SIGUSR1) return {.kind = Kind::makes_way, .exit_code = restart};
  return {.kind = Kind::stopped, .exit_code = wanted};
}

ExitReport Attempt::report() const {
  const Cause* main = main_cause();
  GPUTRAIN_ASSERT(main != nullptr, "a start that went well has no report");
  ExitReport report{.cause = *main,
                    .others = {},
                    .seconds = std::chrono::duration<double>(Clock::now() - began_).count(),
                    .state = request_.state(),
                    .measures = request_.measures,
                    .restarts = {}};
  report.is_heard = main->is_reported() && !main->allows_restart() && !unheard_.contains(main->end.rank);
  constexpr size_t kMostOthers = 4;
  for (const Cause& cause : causes_) {
    if (&cause == main) continue;
    if (report.others.size() == kMostOthers) {
      report.others.push_back("and " + std::to_string(causes_.size() - 1 - kMostOthers) + " more");
      break;
    }
    report.others.push_back(cause.text());
  }
  return report;
}

}  // namespace gputrain::launch

#include "peer_table.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace gputrain::comm {
namespace {

constexpr size_t kMostNamed = 16;

std::string whole_seconds(double seconds) { return std::to_string(std::llround(seconds)) + " s"; }

std::string line(std::string label, const std::string& text) {
  label.resize(9, ' ');
  return "\n    " + label + text;
}

/// Returns "rank 3", "ranks 0, 2-7"
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

bool has_all_ranks(const std::string& group) { return group == kControl || group == kTensors; }

std::string number_text(const std::string& group, int64_t number) {
  return "number " + std::to_string(number) + " of the " +
         (has_all_ranks(group) ? group + " collectives" : "collectives of " + group);
}

std::string hint_of(ExitCode code) {
  return code == ExitCode::internal
             ? "this is a bug in gputrain or in code added to it: please report it with this page and the job"
             : "a restart goes on from the newest checkpoint";
}

}  // namespace

Error RunVerdict::error_of(int rank, const std::string& happening) const {
  const std::string head = "rank " + std::to_string(rank) + ": " + (happening.empty() ? "" : happening + ": ") + cause;
  if (rank == speaker) return {code, {.what = head + page, .hint = hint}};
  return {code, {.what = head, .hint = "rank " + std::to_string(speaker) + " says more"}};
}

Departure departure_of(const Error& error) {
  const std::string message = error.what();
  return {
      .failed = true, .code = error.code(), .words = message.substr(0, message.find('\n')), .hint = error.parts().hint};
}

PeerTable::PeerTable(std::vector<std::string> hosts, int own_rank) : own_rank_(own_rank) {
  for (std::string& host : hosts) ranks_.push_back({.host = std::move(host), .status = {}});
}

void PeerTable::set_places(std::vector<PeerPlace> places) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].place = std::move(places.at(rank));
}

void PeerTable::hear(int rank, RankStatus status) {
  Rank& one = of(rank);
  for (auto& [group, before] : one.status.lanes) {  // keep the calls that it reported before
    RankStatus::Lane& now = status.lanes[group];
    if (now.calls.empty()) now.calls = std::move(before.calls), now.last = before.last;
  }
  one.status = std::move(status);
  one.heard = Clock::now();
}

void PeerTable::lose(int rank, std::string how) {
  of(rank).life = Life::lost;
  of(rank).end.words = std::move(how);
}

void PeerTable::leave(int rank, Departure end) {
  of(rank).life = end.failed ? Life::failed : Life::left;
  of(rank).end = std::move(end);
}

PeerTable::Ranks PeerTable::which(const std::function<bool(const Rank&)>& is_one) const {
  Ranks ranks;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (is_one(ranks_[rank])) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::string PeerTable::name(int rank) const {
  const std::string& place = of(rank).place.text;
  return "rank " + std::to_string(rank) + (place.empty() ? "" : " (" + place + ")") + " on " + of(rank).host;
}

std::string PeerTable::names(const Ranks& ranks) const {
  return ranks.size() == 1 ? name(ranks.front()) : ranks_text(ranks);
}

/// Describes the rank's work when it was last heard of.
std::string PeerTable::state(int rank) const {
  const Rank& one = of(rank);
  const double ago = std::chrono::duration<double>(Clock::now() - one.heard).count();
  const RankStatus& status = one.status;
  if (status.phase.empty()) return "no message from it yet";
  const bool is_here = one.life == Life::here;
  std::string text = status.phase + ", since " + whole_seconds(status.phase_seconds + (is_here ? ago : 0));
  if (const auto& waiting = status.waiting) text += ", waiting for " + waiting->what;
  if (one.life == Life::left || one.life == Life::failed) return text + "; it has ended";
  return is_here ? text : text + " when last heard of, " + whole_seconds(ago) + " ago";
}

std::optional<AwaitedCollective> PeerTable::longest_wait() const {
  std::optional<AwaitedCollective> longest;
  for (const Rank& one : ranks_) {
    const auto& waiting = one.status.waiting;
    if (one.life == Life::here && waiting && (!longest || waiting->seconds > longest->seconds)) longest = waiting;
  }
  return longest;
}

bool PeerTable::is_in(int rank, const std::string& group) const {
  return has_all_ranks(group) || of(rank).place.groups.contains(group);
}

bool PeerTable::has_called(int rank, const AwaitedCollective& what) const {
  if (!what.group.empty()) return of(rank).status.lane(what.group).begun >= what.number;
  return std::ranges::all_of(of(what.caller).status.lanes, [&](const auto& entry) {
    const auto& [group, lane] = entry;
    return !is_in(rank, group) || of(rank).status.lane(group).begun >= lane.begun;
  });
}

PeerTable::Ranks PeerTable::ranks_of(const AwaitedCollective& what) const {
  Ranks ranks;
  for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
    if (what.group.empty() || is_in(rank, what.group)) ranks.push_back(rank);
  }
  return ranks;
}

PeerTable::Ranks PeerTable::missing_in(const AwaitedCollective& what) const {
  Ranks missing = ranks_of(what);
  std::erase_if(missing, [&](int rank) { return has_called(rank, what); });
  return missing;
}

AwaitedCollective PeerTable::cause_of(AwaitedCollective wait) const {
  std::set<std::string> seen{wait.group};
  const auto next = [&]() -> std::optional<AwaitedCollective> {
    for (const int rank : missing_in(wait)) {
      const auto& behind = of(rank).status.waiting;
      const bool is_cause = behind && !seen.contains(behind->group) &&
                            ranks_of(*behind).size() <= ranks_of(wait).size() && !missing_in(*behind).empty();
      if (is_cause) return behind;
    }
    return std::nullopt;
  };
  while (const auto behind = next()) seen.insert(behind->group), wait = *behind;
  return wait;
}

/// Lists which ranks have called a collective and which have not.
std::string PeerTable::page_about(const std::optional<AwaitedCollective>& what) const {
  if (!what) return {};
  Ranks arrived, missing;
  for (const int rank : ranks_of(*what)) {
    if (has_called(rank, *what)) {
      arrived.push_back(rank);
    } else if (own_rank_ == 0 || !of(rank).status.phase.empty()) {
      missing.push_back(rank);
    }
  }
  const std::string number = what->group.empty() ? "" : ", " + number_text(what->group, what->number);
  std::string page = line("at", what->what + number + ", since " + whole_seconds(what->seconds));
  if (!arrived.empty()) page += line("arrived", ranks_text(arrived));
  for (size_t i = 0; i < std::min(missing.size(), kMostNamed); ++i) {
    page += line(i == 0 ? "missing" : "", name(missing[i]) + ": " + state(missing[i]));
  }
  if (missing.size() > kMostNamed) page += line("", "and " + std::to_string(missing.size() - kMostNamed) + " more");
  return page;
}

RunVerdict PeerTable::verdict(ExitCode code, std::string cause, std::string page) const {
  const Ranks here = which([](const Rank& one) { return one.life == Life::here; });
  const int speaker = here.empty() ? own_rank_ : here.front();
  return {.code = code, .cause = std::move(cause), .page = std::move(page), .hint = hint_of(code), .speaker = speaker};
}

bool PeerTable::has_loss() const {
  return !which([](const Rank& one) { return one.life == Life::failed || one.life == Life::lost; }).empty();
}

std::optional<RunVerdict> PeerTable::loss() const {
  for (const Life life : {Life::failed, Life::lost}) {
    const Ranks those = which([&](const Rank& one) { return one.life == life; });
    if (those.empty()) continue;
    const int rank = those.front();
    const bool is_lost = life == Life::lost;
    const Departure& end = of(rank).end;
    std::string cause = name(rank) + (is_lost ? " " : " has ended by an error") +
                        (is_lost || end.words.empty() ? "" : ": ") + end.words;
    auto wait = longest_wait();
    if (wait) wait = cause_of(*wait);
    std::string page = page_about(wait);
    for (const int other : those) {
      const bool is_reported = wait && std::ranges::count(missing_in(*wait), other) > 0;
      if (!is_reported) page += line(is_lost ? "lost" : "ended", name(other) + ": " + state(other));
    }
    RunVerdict found = verdict(ExitCode::restart, std::move(cause), std::move(page));
    if (!is_lost && !allows_restart(end.code)) found.code = end.code, found.hint = end.hint;
    if (is_lost) found.hint = "check " + of(rank).host + " and the end of that rank's log; " + found.hint;
    return found;
  }
  return std::nullopt;
}

bool PeerTable::is_suspicious(double seconds) {
  const auto is_new = [&](const std::string& group, int64_t number) {
    return std::exchange(suspected_, std::pair(group, number)) != std::pair(group, number);
  };
  const auto wait = longest_wait();
  if (wait && wait->seconds >= seconds && missing_in(*wait).empty()) return is_new(wait->group, wait->number);
  std::map<std::pair<std::string, int64_t>, uint64_t> marks;
  for (const Rank& one : ranks_) {
    for (const auto& [group, lane] : one.status.lanes) {
      const bool is_equal =
          lane.mark == 0 || marks.try_emplace({group, lane.mark}, lane.mark_hash).first->second == lane.mark_hash;
      if (!is_equal) return is_new(group, -lane.mark);
    }
  }
  return false;
}

std::optional<RunVerdict> PeerTable::disagreement(double seconds) const {
  std::set<std::string> groups;
  for (const Rank& one : ranks_) {
    for (const auto& [group, lane] : one.status.lanes) groups.insert(group);
  }
  for (const std::string& group : groups) {
    if (auto found = different_calls(group)) return found;
  }
  return waiting_in_a_circle(seconds);
}

/// Returns the first difference among the collectives that most ranks still remember: ranks go on meanwhile, so one may
/// remember calls from a later number on than another.
std::optional<RunVerdict> PeerTable::different_calls(const std::string& group) const {
  int64_t first = INT64_MAX, last = 0;
  for (const Rank& one : ranks_) {
    const auto& lane = one.status.lane(group);
    if (lane.calls.empty()) continue;
    first = std::min(first, lane.last - std::ssize(lane.calls) + 1);
    last = std::max(last, lane.last);
  }
  using Calls = std::map<std::string, Ranks>;
  Calls differing;
  int64_t at = 0;
  size_t most = 0;
  for (int64_t number = first; number <= last && most < ranks_.size(); ++number) {
    Calls calls;
    size_t known = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto call = ranks_[rank].status.call(group, number);
      if (!call) continue;
      calls[*call].push_back(static_cast<int>(rank));
      ++known;
    }
    if (calls.size() < 2 || known <= most) continue;
    most = known;
    at = number;
    differing = std::move(calls);
  }
  if (differing.empty()) return std::nullopt;
  std::string page;
  for (const auto& [call, ranks] : differing) page += line("called", call + " on " + ranks_text(ranks));
  for (const auto& [call, ranks] : differing) page += line("", name(ranks.front()) + ": " + state(ranks.front()));
  return verdict(ExitCode::internal,
                 "the ranks do not call the same collectives: they differ in " + number_text(group, at),
                 std::move(page));
}

/// Returns the verdict if every rank waits, each for a collective that another rank has not called.
std::optional<RunVerdict> PeerTable::waiting_in_a_circle(double seconds) const {
  for (const Rank& one : ranks_) {
    const auto& waiting = one.status.waiting;
    if (one.life != Life::here || !waiting || waiting->seconds < seconds || missing_in(*waiting).empty())
      return std::nullopt;
  }
  const AwaitedCollective wait = cause_of(*longest_wait());
  return verdict(ExitCode::internal,
                 "the ranks do not call the same collectives: they wait for each other, and " +
                     names(missing_in(wait)) + " did not come to " + wait.what,
                 page_about(wait));
}

RunVerdict PeerTable::failure(const Failure& failure) const {
  const std::string reason = " (" + failure.message + ")";
  const Ranks left = which([](const Rank& one) { return one.life == Life::left; });
  auto in = failure.in ? failure.in : longest_wait();
  if (in && !in->group.empty()) in = cause_of(*in);
  std::string page = page_about(in);
  if (!left.empty()) {
    const std::string& words = of(left.front()).end.words;
    return verdict(ExitCode::restart,
                   name(left.front()) + " has ended before the others" + (words.empty() ? "" : ": " + words), page);
  }
  const Ranks missing = in ? missing_in(*in) : Ranks();
  if (missing.empty()) {
    return verdict(ExitCode::restart, in ? failure.message : "a connection between ranks broke" + reason, page);
  }
  RunVerdict found = verdict(ExitCode::restart, names(missing) + " did not come" + reason, page);
  found.hint = "find out what that rank was doing; parallel.timeout is how long the others wait; " + found.hint;
  return found;
}

}  // namespace gputrain::comm

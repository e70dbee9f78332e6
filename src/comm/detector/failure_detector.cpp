#include "failure_detector.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/signals.hpp"

namespace gputrain::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunVerdict, code, cause, page, hint, speaker)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Departure, failed, code, words, hint)

namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kHeartbeatEvery{1};
constexpr seconds kExplaining{3};               // how long a rank waits to learn why its collective failed
constexpr seconds kGathering{1};                // how long rank 0 waits for the other ranks' reports before it decides
constexpr milliseconds kChoosingReporter{500};  // how long rank 0 waits, because it may fail too and be the reporter
constexpr seconds kForcedExit{3};               // for the handler of a forced exit
constexpr seconds kOwnSleep{5};                 // after a longer pause of this process, restart the peers' timeouts
constexpr double kStuckSeconds = 2;             // in a collective, before the calls of the ranks are compared

std::string text_of(const json& message) { return message.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string whole_seconds_of(milliseconds time) {
  return std::to_string(std::chrono::duration_cast<seconds>(time).count()) + " s";
}

json to_json(const Failure& failure) {
  json all{{"message", failure.message}};
  if (failure.in) {
    RankStatus status;
    status.waiting = failure.in;
    all["in"] = to_json(status);
  }
  return all;
}

Failure failure_from_json(const json& all) {
  Failure failure{.message = all.at("message"), .in = {}};
  if (all.contains("in")) failure.in = rank_status_from_json(all["in"]).waiting;
  return failure;
}

}  // namespace

FailureDetector::FailureDetector(Options options, int socket)
    : options_(std::move(options)),
      wake_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_(options_.rank == 0 ? socket : -1, static_cast<int>(options_.hosts.size()), options_.secret,
                options_.silence),
      peers_(options_.hosts, options_.rank) {
  if (!is_coordinator()) {
    links_[0] = std::make_unique<HeartbeatLink>(socket);
    links_[0]->out.insist(hello_of(options_.rank, options_.secret));
  }
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

FailureDetector::~FailureDetector() {
  leave(std::uncaught_exceptions() == 0
            ? Departure()
            : departure_of({ExitCode::internal, {.what = "the last lines of its output say why"}}));
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  ::eventfd_write(wake_event_.get(), 1);
  thread_.join();
}

void FailureDetector::enter(const char* phase, int64_t step) {
  if (!collective_log_.enter(phase, step) || Clock::now() - hastened_ < kHeartbeatEvery) return;
  hastened_ = Clock::now();
  hastens_ = true;
  ::eventfd_write(wake_event_.get(), 1);
}

void FailureDetector::set_places(std::vector<PeerPlace> places) {
  const std::lock_guard lock(mutex_);
  places_ = std::move(places);
}

std::optional<RunVerdict> FailureDetector::verdict() const {
  if (!has_verdict_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return verdict_;
}

void FailureDetector::report(Failure failure) {
  {
    const std::lock_guard lock(mutex_);
    reports_.push_back(std::move(failure));
  }
  ::eventfd_write(wake_event_.get(), 1);
}

std::optional<RunVerdict> FailureDetector::explain(Failure failure) {
  if (!has_verdict_) report(std::move(failure));
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kExplaining, [this] { return verdict_ || has_no_coordinator_; });
  return verdict_;
}

void FailureDetector::leave(Departure departure) {
  {
    const std::lock_guard lock(mutex_);
    if (departure_) return;
    departure_ = std::move(departure);
    ends_by_itself_ = !verdict_;
  }
  ::eventfd_write(wake_event_.get(), 1);
}

bool FailureDetector::is_reporter() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kChoosingReporter + kGathering, [this] { return reporter_ || coordinator_departure_; });
  if (reporter_) return *reporter_ == options_.rank;
  return !coordinator_departure_ || !coordinator_departure_->failed ||
         coordinator_departure_->words != departure_->words;
}

void FailureDetector::end_by(const Error& error, bool is_reported) {
  const std::lock_guard lock(mutex_);
  own_end_ = End{.error = error, .is_reported = is_reported, .at = Clock::now() + options_.grace};
}

void FailureDetector::set_forced_exit_handler(std::function<void(const Error&)> on_forced_exit) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ends_process_; });
  on_forced_exit_ = std::move(on_forced_exit);
}

// The watch thread

void FailureDetector::run() {
  while (true) {
    wait();
    accept_links();
    for (auto& [rank, link] : links_) read(rank, *link);
    std::erase_if(links_, [](const auto& entry) { return entry.second->in.is_at_end(); });
    take_reports();
    if (hastens_.exchange(false)) heartbeat(false);
    if (Clock::now() >= next_heartbeat_) {
      next_heartbeat_ = Clock::now() + kHeartbeatEvery;
      heartbeat(false);
      check_timeouts();
      has_news_ = true;
    }
    if (std::exchange(has_news_, false) || (gathering_ && Clock::now() >= gathering_->until)) decide();
    end_if_overdue();
    announce_departure();
    name_reporters();
    const std::lock_guard lock(mutex_);
    if (stops_) return;
  }
}

void FailureDetector::wait() {
  Poll poll;
  poll.wake_at(next_heartbeat_);
  if (gathering_) poll.wake_at(gathering_->until);
  if (!failed_ranks_.empty()) poll.wake_at(reporters_due_);
  poll.add(wake_event_.get());
  listener_.add_to(poll);
  for (const auto& [rank, link] : links_) link->add_to(poll);
  poll.wait();
  eventfd_t ignored = 0;
  ::eventfd_read(wake_event_.get(), &ignored);
  if (Clock::now() - std::exchange(awake_, Clock::now()) > kOwnSleep) restart_timeouts();
}

/// Restarts all timeouts, because a process that was paused has read no heartbeats.
void FailureDetector::restart_timeouts() {
  for (auto& [rank, link] : links_) link->heard = Clock::now();
  listener_.restart_timeouts();
}

void FailureDetector::accept_links() {
  for (auto& [rank, link, lines] : listener_.attend()) {
    links_[rank] = std::move(link);
    for (const auto& line : lines) take(rank, line);
    heartbeat(false);
  }
}

void FailureDetector::read(int rank, HeartbeatLink& link) {
  link.out.flush();
  link.in.read([&](std::string_view line) {
    link.heard = Clock::now();
    take(rank, line);
  });
  if (!link.in.is_at_end() || !peers_.is_here(rank)) return;
  peers_.lose(rank, "has ended without a word (killed or crashed)");
  has_news_ = true;
}

void FailureDetector::take(int rank, std::string_view line) {
  try {
    take_message(rank, json::parse(line));
  } catch (const json::exception&) {
    // A broken line of a rank that died. Important facts are sent again, or follow from the rank's end.
  }
}

void FailureDetector::take_message(int rank, const json& message) {
  if (message.contains("at")) {
    peers_.hear(rank, rank_status_from_json(message["at"]));
    if (message.contains("news") && gathering_) gathering_->missing.erase(rank);
    has_news_ = has_news_ || message.contains("news");
  }
  if (message.contains("tell")) heartbeat(true);
  if (message.contains("failed")) note_failure(failure_from_json(message["failed"]));
  if (message.contains("verdict")) announce(message["verdict"].get<RunVerdict>());
  if (message.contains("reporter")) take_reporter(message["reporter"]);
  if (!message.contains("bye")) return;
  const auto bye = message["bye"].get<Departure>();
  peers_.leave(rank, bye);
  has_news_ = true;
  if (is_coordinator()) {
    if (failed_ranks_.empty()) reporters_due_ = Clock::now() + kChoosingReporter;
    if (bye.failed) failed_ranks_.emplace_back(rank, bye.words);
    return;
  }
  const std::lock_guard lock(mutex_);
  has_no_coordinator_ = true;
  coordinator_departure_ = bye;
  changed_.notify_all();
}

void FailureDetector::take_reports() {
  std::vector<Failure> reports;
  {
    const std::lock_guard lock(mutex_);
    reports.swap(reports_);
    if (!places_.empty()) peers_.set_places(std::exchange(places_, {}));
  }
  for (Failure& failure : reports) {
    if (is_coordinator()) {
      note_failure(std::move(failure));
    } else {
      heartbeat(true);
      tell_all(text_of({{"failed", to_json(failure)}}));
    }
  }
}

/// Only the first failure counts; the other ranks' reports decide what it means.
void FailureDetector::note_failure(Failure failure) {
  if (failure_ || has_verdict_) return;
  failure_ = std::move(failure);
  has_news_ = true;
}

void FailureDetector::heartbeat(bool with_calls) {
  RankStatus status = collective_log_.status(with_calls);
  json message{{"at", to_json(status)}};
  if (with_calls) message["news"] = true;
  const std::string text = text_of(message);
  for (auto& [rank, link] : links_) link->out.write(text);
  peers_.hear(options_.rank, std::move(status));
}

void FailureDetector::check_timeouts() {
  const auto now = Clock::now();
  for (const auto& [rank, link] : links_) {
    if (now - link->heard <= options_.silence || !peers_.is_here(rank)) continue;
    peers_.lose(rank, "has not been heard from for " + whole_seconds_of(options_.silence) +
                          " (stopped, or its host or network is gone)");
  }
  for (const int rank : listener_.overdue()) {
    if (peers_.is_here(rank)) peers_.lose(rank, "never connected");
  }
}

/// Asks every rank what it is doing and what it has called.
void FailureDetector::gather() {
  gathering_ = {.until = Clock::now() + kGathering, .missing = {}};
  for (const auto& [rank, link] : links_) gathering_->missing.insert(rank);
  heartbeat(true);
  tell_all(text_of({{"tell", true}}));
}

bool FailureDetector::has_gathered() {
  std::erase_if(gathering_->missing, [this](int rank) { return !peers_.is_here(rank); });
  return gathering_->missing.empty() || Clock::now() >= gathering_->until;
}

void FailureDetector::decide() {
  if (has_verdict_) return;
  if (!is_coordinator()) {
    if (!peers_.has_loss()) return;
    heartbeat(false);
    return announce(*peers_.loss());
  }
  const bool has_failed = failure_ || peers_.has_loss();
  if (!gathering_ && (has_failed || peers_.is_suspicious(kStuckSeconds))) gather();
  if (gathering_ && !has_gathered()) return;
  gathering_.reset();
  auto found = peers_.loss();
  if (!found) found = peers_.disagreement(kStuckSeconds);
  if (!found && failure_) found = peers_.failure(*failure_);
  if (found) announce(*found);
}

void FailureDetector::announce(const RunVerdict& verdict) {
  if (has_verdict_) return;
  if (is_coordinator()) tell_all(text_of({{"verdict", verdict}}));
  const std::lock_guard lock(mutex_);
  verdict_ = verdict;
  end_at_ = Clock::now() + options_.grace;
  has_verdict_ = true;
  changed_.notify_all();
}

/// Returns the end by force that is due. The main thread may be stuck where nothing wakes it: in a GPU queue, on a lost
/// disk, in user code. A rank that ends by itself may finish its writes, but releasing resources can hang as well, such
/// as NCCL's abort.
std::optional<FailureDetector::End> FailureDetector::end_due() {
  const auto now = Clock::now();
  const bool is_overdue = verdict_ && !ends_by_itself_ && now >= end_at_;
  if (own_end_ && (is_overdue || now >= own_end_->at)) return own_end_;
  if (!is_overdue) return std::nullopt;
  return End{.error = verdict_->error_of(options_.rank, ""), .is_reported = false, .at = end_at_};
}

void FailureDetector::end_if_overdue() {
  std::unique_lock lock(mutex_);
  const auto due = end_due();
  if (!due) return;
  ends_process_ = true;
  const auto on_forced_exit = on_forced_exit_;
  lock.unlock();
  end(*due, on_forced_exit);
}

/// Prints the page first: the handler may be stuck as well, and has only kForcedExit.
void FailureDetector::end(const End& how, const std::function<void(const Error&)>& on_forced_exit) {
  const Error& error = how.error;
  const std::string text = how.is_reported ? "" : std::string("error: ") + error.what() + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  if (on_forced_exit) {
    std::thread([&] {
      try {
        on_forced_exit(error);
      } catch (const std::exception&) {
        // The process ends either way.
      }
      std::_Exit(static_cast<int>(error.code()));
    }).detach();
    std::this_thread::sleep_for(kForcedExit);
  }
  std::_Exit(static_cast<int>(error.code()));
}

void FailureDetector::announce_departure() {
  Departure departure;
  {
    const std::lock_guard lock(mutex_);
    if (!departure_ || std::exchange(departure_announced_, true)) return;
    departure = *departure_;
  }
  if (is_coordinator() && departure.failed) {
    failed_ranks_.emplace(failed_ranks_.begin(), options_.rank, departure.words);
    reporters_due_ = Clock::now();
    name_reporters();  // first: the departure does not tell ranks with another message who reports it
  }
  tell_all(text_of({{"bye", departure}}));
}

void FailureDetector::name_reporters() {
  if (failed_ranks_.empty() || Clock::now() < reporters_due_) return;
  for (const auto& [rank, words] : std::exchange(failed_ranks_, {})) {
    const int reporter = reporters_.try_emplace(words, rank).first->second;
    if (const auto link = links_.find(rank); link != links_.end())
      link->second->out.insist(text_of({{"reporter", reporter}}));
    if (rank == options_.rank) take_reporter(reporter);
  }
}

void FailureDetector::take_reporter(int rank) {
  const std::lock_guard lock(mutex_);
  reporter_ = rank;
  changed_.notify_all();
}

void FailureDetector::tell_all(const std::string& message) {
  for (auto& [rank, link] : links_) link->out.insist(message);
}

}  // namespace gputrain::comm

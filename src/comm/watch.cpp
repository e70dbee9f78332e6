#include "watch.hpp"

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
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kBeatEvery{1};
constexpr seconds kJudging{3};         // how long a rank waits to be told why its collective broke off
constexpr seconds kGathering{1};       // how long rank 0 waits for what others have to say before it decides
constexpr milliseconds kTelling{500};  // how long rank 0 may follow ranks that leave, to tell in their place
constexpr seconds kLastWords{3};       // of a process that is ended
constexpr seconds kOwnSleep{5};        // who was stopped for so long knows nothing of the others' silence
constexpr double kStuckSeconds = 2;    // in a collective, before what the ranks have called is compared

std::string text_of(const json& message) { return message.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string whole_seconds_of(milliseconds time) {
  return std::to_string(std::chrono::duration_cast<seconds>(time).count()) + " s";
}

json to_json(const Failure& failure) {
  json all{{"message", failure.message}};
  if (failure.in) {
    Standing standing;
    standing.waiting = failure.in;
    all["in"] = to_json(standing);
  }
  return all;
}

Failure failure_from_json(const json& all) {
  Failure failure{.message = all.at("message"), .in = {}};
  if (all.contains("in")) failure.in = standing_from_json(all["in"]).waiting;
  return failure;
}

}  // namespace

Watch::Watch(Options options, int socket)
    : options_(std::move(options)),
      bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      door_(options_.rank == 0 ? socket : -1, static_cast<int>(options_.hosts.size()), options_.secret,
            options_.silence),
      roster_(options_.hosts, options_.rank) {
  if (!is_arbiter()) {
    links_[0] = std::make_unique<WatchLink>(socket);
    links_[0]->out.insist(hello_of(options_.rank, options_.secret));
  }
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  const bool failed = std::uncaught_exceptions() > 0;
  leave(failed ? "its own last lines say why" : "", failed);
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  ::eventfd_write(bell_.get(), 1);
  thread_.join();
}

void Watch::enter(const char* place, int64_t step) {
  if (!journal_.enter(place, step) || Clock::now() - hastened_ < kBeatEvery) return;
  hastened_ = Clock::now();
  hastens_ = true;
  ::eventfd_write(bell_.get(), 1);
}

std::optional<Verdict> Watch::verdict() const {
  if (!has_verdict_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return verdict_;
}

void Watch::report(Failure failure) {
  {
    const std::lock_guard lock(mutex_);
    reports_.push_back(std::move(failure));
  }
  ::eventfd_write(bell_.get(), 1);
}

std::optional<Verdict> Watch::judge(Failure failure) {
  if (!has_verdict_) report(std::move(failure));
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kJudging, [this] { return verdict_ || is_deaf_; });
  return verdict_;
}

void Watch::leave(const std::string& words, bool failed) {
  {
    const std::lock_guard lock(mutex_);
    if (goodbye_) return;
    goodbye_ = {.words = words.substr(0, words.find('\n')), .failed = failed};
    is_spared_ = !verdict_;
  }
  ::eventfd_write(bell_.get(), 1);
}

bool Watch::is_teller() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kTelling + kGathering, [this] { return teller_ || of_arbiter_; });
  if (teller_) return *teller_ == options_.rank;
  return !of_arbiter_ || !of_arbiter_->failed || of_arbiter_->words != goodbye_->words;
}

void Watch::end_by(const Error& error, bool is_told) {
  const std::lock_guard lock(mutex_);
  own_end_ = End{.error = error, .is_told = is_told, .at = Clock::now() + options_.grace};
}

void Watch::set_last_words(std::function<void(const Error&)> last_words) {
  const std::lock_guard lock(mutex_);
  last_words_ = std::move(last_words);
}

// The thread

void Watch::run() {
  while (true) {
    wait();
    greet();
    for (auto& [rank, link] : links_) read(rank, *link);
    std::erase_if(links_, [](const auto& entry) { return entry.second->in.is_at_end(); });
    take_reports();
    if (hastens_.exchange(false)) beat(false);
    if (Clock::now() >= next_beat_) {
      next_beat_ = Clock::now() + kBeatEvery;
      beat(false);
      look_for_silence();
      has_news_ = true;
    }
    if (std::exchange(has_news_, false) || (gathering_ && Clock::now() >= gathering_->until)) decide();
    end_if_overdue();
    say_goodbye();
    name_tellers();
    const std::lock_guard lock(mutex_);
    if (stops_) return;
  }
}

void Watch::wait() {
  Poll poll;
  poll.wake_at(next_beat_);
  if (gathering_) poll.wake_at(gathering_->until);
  if (!leavers_.empty()) poll.wake_at(tellers_due_);
  poll.add(bell_.get());
  door_.add_to(poll);
  for (const auto& [rank, link] : links_) link->add_to(poll);
  poll.wait();
  eventfd_t ignored = 0;
  ::eventfd_read(bell_.get(), &ignored);
  if (Clock::now() - std::exchange(awake_, Clock::now()) > kOwnSleep) forgive();
}

/// Whoever was stopped himself has heard nobody.
void Watch::forgive() {
  for (auto& [rank, link] : links_) link->heard = Clock::now();
  door_.forgive();
}

void Watch::greet() {
  for (auto& [rank, link, lines] : door_.attend()) {
    links_[rank] = std::move(link);
    for (const auto& line : lines) take(rank, line);
    beat(false);
  }
}

void Watch::read(int rank, WatchLink& link) {
  link.out.flush();
  link.in.read([&](std::string_view line) {
    link.heard = Clock::now();
    take(rank, line);
  });
  if (!link.in.is_at_end() || !roster_.is_here(rank)) return;
  roster_.lose(rank, "has ended without a word (killed or crashed)");
  has_news_ = true;
}

void Watch::take(int rank, std::string_view line) {
  try {
    take_message(rank, json::parse(line));
  } catch (const json::exception&) {
    // Half a line of a rank that died; what matters is said again or known by its end.
  }
}

void Watch::take_message(int rank, const json& message) {
  if (message.contains("at")) {
    roster_.hear(rank, standing_from_json(message["at"]));
    if (message.contains("news") && gathering_) gathering_->missing.erase(rank);
    has_news_ = has_news_ || message.contains("news");
  }
  if (message.contains("tell")) beat(true);
  if (message.contains("failed")) note_failure(failure_from_json(message["failed"]));
  if (message.contains("verdict")) announce(verdict_from_json(message["verdict"]));
  if (message.contains("teller")) take_teller(message["teller"]);
  if (!message.contains("bye")) return;
  const json& bye = message["bye"];
  roster_.leave(rank, bye.at("words"), bye.at("failed"));
  has_news_ = true;
  if (is_arbiter()) {
    if (leavers_.empty()) tellers_due_ = Clock::now() + kTelling;
    if (bye.at("failed")) leavers_.emplace_back(rank, bye.at("words"));
    return;
  }
  const std::lock_guard lock(mutex_);
  is_deaf_ = true;
  of_arbiter_ = {.words = bye.at("words"), .failed = bye.at("failed")};
  changed_.notify_all();
}

void Watch::take_reports() {
  std::vector<Failure> reports;
  {
    const std::lock_guard lock(mutex_);
    reports.swap(reports_);
  }
  for (Failure& failure : reports) {
    if (is_arbiter()) {
      note_failure(std::move(failure));
    } else {
      beat(true);
      tell_all(text_of({{"failed", to_json(failure)}}));
    }
  }
}

/// The first one counts; what the others have seen of it decides what it means.
void Watch::note_failure(Failure failure) {
  if (failure_ || has_verdict_) return;
  failure_ = std::move(failure);
  has_news_ = true;
}

void Watch::beat(bool with_calls) {
  Standing standing = journal_.standing(with_calls);
  json message{{"at", to_json(standing)}};
  if (with_calls) message["news"] = true;
  const std::string text = text_of(message);
  for (auto& [rank, link] : links_) link->out.write(text);
  roster_.hear(options_.rank, std::move(standing));
}

void Watch::look_for_silence() {
  const auto now = Clock::now();
  for (const auto& [rank, link] : links_) {
    if (now - link->heard <= options_.silence || !roster_.is_here(rank)) continue;
    roster_.lose(rank, "has not been heard from for " + whole_seconds_of(options_.silence) +
                           " (stopped, or its host or network is gone)");
  }
  for (const int rank : door_.overdue()) {
    if (roster_.is_here(rank)) roster_.lose(rank, "never came");
  }
}

/// Asks everyone what they are at and have called.
void Watch::gather() {
  gathering_ = {.until = Clock::now() + kGathering, .missing = {}};
  for (const auto& [rank, link] : links_) gathering_->missing.insert(rank);
  beat(true);
  tell_all(text_of({{"tell", true}}));
}

bool Watch::has_gathered() {
  std::erase_if(gathering_->missing, [this](int rank) { return !roster_.is_here(rank); });
  return gathering_->missing.empty() || Clock::now() >= gathering_->until;
}

void Watch::decide() {
  if (has_verdict_) return;
  if (!is_arbiter()) {
    if (!roster_.has_loss()) return;
    beat(false);
    return announce(*roster_.loss());
  }
  const bool has_failed = failure_ || roster_.has_loss();
  if (!gathering_ && (has_failed || roster_.is_suspicious(kStuckSeconds))) gather();
  if (gathering_ && !has_gathered()) return;
  gathering_.reset();
  auto found = roster_.loss();
  if (!found) found = roster_.disagreement(kStuckSeconds);
  if (!found && failure_) found = roster_.failure(*failure_);
  if (found) announce(*found);
}

void Watch::announce(const Verdict& verdict) {
  if (has_verdict_) return;
  if (is_arbiter()) tell_all(text_of({{"verdict", to_json(verdict)}}));
  const std::lock_guard lock(mutex_);
  verdict_ = verdict;
  end_at_ = Clock::now() + options_.grace;
  has_verdict_ = true;
  changed_.notify_all();
}

/// A thread that trains may be stuck where nothing wakes it: in a GPU's queue, in a disk that is gone, in user code.
/// One that ends by itself is left to finish what it writes, but giving back may hang as well, as in NCCL's abort.
std::optional<Watch::End> Watch::end_due() {
  const auto now = Clock::now();
  const bool is_condemned = verdict_ && !is_spared_ && now >= end_at_;
  if (own_end_ && (is_condemned || now >= own_end_->at)) return own_end_;
  if (!is_condemned) return std::nullopt;
  return End{.error = verdict_->error_of(options_.rank, ""), .is_told = false, .at = end_at_};
}

void Watch::end_if_overdue() {
  std::unique_lock lock(mutex_);
  const auto due = end_due();
  if (!due) return;
  const auto last_words = last_words_;
  lock.unlock();
  end(*due, last_words);
}

/// Says the page first: what comes after it may be stuck as well, and has only so long.
void Watch::end(const End& how, const std::function<void(const Error&)>& last_words) {
  const Error& error = how.error;
  const std::string text = how.is_told ? "" : std::string("error: ") + error.what() + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  if (last_words) {
    std::thread([&] {
      try {
        last_words(error);
      } catch (const std::exception&) {
        // The process ends either way.
      }
      std::_Exit(static_cast<int>(error.code()));
    }).detach();
    std::this_thread::sleep_for(kLastWords);
  }
  std::_Exit(static_cast<int>(error.code()));
}

void Watch::say_goodbye() {
  Goodbye goodbye;
  {
    const std::lock_guard lock(mutex_);
    if (!goodbye_ || std::exchange(goodbye_said_, true)) return;
    goodbye = *goodbye_;
  }
  if (is_arbiter() && goodbye.failed) {
    leavers_.emplace(leavers_.begin(), options_.rank, goodbye.words);
    tellers_due_ = Clock::now();
    name_tellers();  // before they hear the goodbye, which is no answer to all of them
  }
  tell_all(text_of({{"bye", {{"words", goodbye.words}, {"failed", goodbye.failed}}}}));
}

void Watch::name_tellers() {
  if (leavers_.empty() || Clock::now() < tellers_due_) return;
  for (const auto& [rank, words] : std::exchange(leavers_, {})) {
    const int teller = tellers_.try_emplace(words, rank).first->second;
    if (const auto link = links_.find(rank); link != links_.end())
      link->second->out.insist(text_of({{"teller", teller}}));
    if (rank == options_.rank) take_teller(teller);
  }
}

void Watch::take_teller(int rank) {
  const std::lock_guard lock(mutex_);
  teller_ = rank;
  changed_.notify_all();
}

void Watch::tell_all(const std::string& message) {
  for (auto& [rank, link] : links_) link->out.insist(message);
}

}  // namespace gputrain::comm

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "clouds.hpp"
#include "gputrain/cloud/notice.hpp"
#include "gputrain/core/signals.hpp"
#include "gputrain/net/cancellation.hpp"
#include "gputrain/net/client.hpp"

namespace gputrain::cloud {
namespace {

using Clock = std::chrono::steady_clock;

// Number of probes of a service that exists but does not answer properly when the run starts.
constexpr int kProbeRounds = 12;
constexpr int64_t kFailuresBeforeRemark = 3;
constexpr size_t kAnswerShown = 120;
constexpr size_t kLargestAnswer = 64 << 10;
constexpr std::chrono::milliseconds kConnecting{1000};

Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

/// Writes whole seconds or, below one, milliseconds.
std::string interval_text(double interval) {
  const bool is_short = interval < 1;
  return std::to_string(std::lround(is_short ? interval * 1000 : interval)) + (is_short ? " ms" : " s");
}

/// Returns the start of an answer as one line of printable characters.
std::string shown(std::string_view body) {
  std::string text(body.substr(0, kAnswerShown));
  for (char& c : text) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
    if (c < ' ' || c > '~') c = '?';
  }
  return text + (body.size() > kAnswerShown ? "..." : "");
}

/// Returns whether a service is busy or broken, unlike one that does not know the page.
bool is_passing_trouble(int status) { return status == 429 || status >= 500; }

}  // namespace

/// Poller: the thread, and the state that it shares with callers.
class NoticeWatcher::Poller {
 public:
  explicit Poller(Options options) : options_(std::move(options)) {
    const SignalsBlocked inherited;
    thread_ = std::thread([this] { run(); });
  }
  ~Poller() {
    cancellation_.cancel();
    thread_.join();
  }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  std::optional<Notice> notice() const {
    const std::lock_guard lock(mutex_);
    return shared_.notice;
  }
  std::vector<std::string> take_remarks() {
    const std::lock_guard lock(mutex_);
    return std::exchange(shared_.remarks, {});
  }
  std::string description() const {
    const std::lock_guard lock(mutex_);
    return shared_.description;
  }
  Counts counts() const {
    const std::lock_guard lock(mutex_);
    return shared_.counts;
  }
  bool wait_until_known(double for_seconds) const {
    std::unique_lock lock(mutex_);
    return known_.wait_for(lock, seconds(for_seconds), [this] { return shared_.is_known; });
  }

 private:
  /// State of one poll of the cloud.
  struct Track {
    std::optional<Notice> notice;
    std::optional<WallTime> at;  // announced time
    std::optional<Clock::time_point> last_clear;
    bool was_junk = false;
  };
  struct Candidate {
    const Cloud* cloud = nullptr;
    std::string service;  // "http://169.254.169.254:80"
  };
  enum class Found { here, elsewhere, unreachable, unclear };

  void run() noexcept;
  void watch();
  std::vector<Candidate> candidates() const;
  bool find_cloud();
  Found probe(const Candidate& candidate);
  void ask_all();
  net::Response send(const Candidate& candidate, net::Request request);
  std::optional<net::Response> ask(const CloudPoll& poll);
  void follow(const CloudPoll& poll, const net::Response& reply, Clock::time_point asked, Track& track);
  void announce(const Reading& reading, Clock::time_point asked, Track& track) const;
  void note_failure(const std::string& reason);
  void publish();
  void settle(std::string description);
  void remark(std::string text);

  const Options options_;
  net::Cancellation cancellation_;

  // Members that only the thread uses.
  std::unique_ptr<net::Transport> transport_;
  Candidate chosen_;
  std::string identity_;
  std::vector<Track> tracks_;  // one per poll of the cloud
  int64_t failures_in_a_row_ = 0;
  bool failure_said_ = false;

  struct Shared {
    std::optional<Notice> notice;
    std::vector<std::string> remarks;
    std::string description = "looking for a cloud's metadata service";
    Counts counts;
    bool is_known = false;
  };
  mutable std::mutex mutex_;  // guards shared_, never held while waiting for a service
  mutable std::condition_variable known_;
  Shared shared_;

  std::thread thread_;  // last: it uses everything above
};

void NoticeWatcher::Poller::run() noexcept {
  try {
    watch();
  } catch (const std::exception& error) {
    settle(std::string("not watched any more: ") + error.what());
    remark(std::string("the cloud's notices are not watched any more: ") + error.what());
  }
}

void NoticeWatcher::Poller::watch() {
  transport_ = net::curl_transport();
  if (!find_cloud()) return;
  tracks_.resize(chosen_.cloud->polls.size());
  settle(std::string(chosen_.cloud->name) + " metadata polled every " + interval_text(options_.interval_seconds));
  do {
    ask_all();
  } while (!cancellation_.wait(options_.interval_seconds));
}

std::vector<NoticeWatcher::Poller::Candidate> NoticeWatcher::Poller::candidates() const {
  std::vector<Candidate> found;
  for (const Cloud& cloud : clouds()) {
    if (options_.sources.empty()) found.push_back({&cloud, "http://" + std::string(cloud.address)});
    for (const MetadataSource& source : options_.sources) {
      if (source.cloud == cloud.key)
        found.push_back({&cloud, "http://" + source.address + ":" + std::to_string(source.port)});
    }
  }
  return found;
}

bool NoticeWatcher::Poller::find_cloud() {
  const auto all = candidates();
  for (int round = 0; round < kProbeRounds; ++round) {
    bool unclear = false;
    std::string silent;  // three clouds share an address: if one gets no connection, none does
    for (const Candidate& candidate : all) {
      if (silent == candidate.service) continue;
      const Found found = probe(candidate);
      if (found == Found::here) return true;
      if (found == Found::unreachable) silent = candidate.service;
      unclear = unclear || found == Found::unclear;
    }
    if (!unclear) break;
    if (cancellation_.wait(options_.interval_seconds)) return false;
  }
  settle("no cloud metadata service");
  return false;
}

/// Sends a request without a proxy, which would answer for another machine, and without following a redirect.
net::Response NoticeWatcher::Poller::send(const Candidate& candidate, net::Request request) {
  const auto total = std::chrono::ceil<std::chrono::milliseconds>(seconds(options_.answer_seconds));
  request.url = candidate.service + request.url;
  request.may_use_proxy = false;
  request.limits = {.connect = std::min(kConnecting, total), .total = total, .bytes = kLargestAnswer};
  request.cancellation = &cancellation_;
  return transport_->send(request);
}

NoticeWatcher::Poller::Found NoticeWatcher::Poller::probe(const Candidate& candidate) {
  try {
    const net::Response reply = send(candidate, candidate.cloud->probe);
    auto identity = candidate.cloud->identify(reply);
    if (!identity) return is_passing_trouble(reply.status) ? Found::unclear : Found::elsewhere;
    chosen_ = candidate;
    identity_ = std::move(*identity);
    return Found::here;
  } catch (const net::Unreachable&) {
    return Found::unreachable;
  } catch (const std::exception&) {
    return Found::unclear;
  }
}

void NoticeWatcher::Poller::ask_all() {
  for (size_t i = 0; i < tracks_.size(); ++i) {
    const CloudPoll& poll = chosen_.cloud->polls[i];
    const auto asked = Clock::now();
    const auto reply = ask(poll);
    if (reply) follow(poll, *reply, asked, tracks_[i]);
  }
  publish();
}

/// Returns the answer to one poll; gets a new token if the old one has expired.
std::optional<net::Response> NoticeWatcher::Poller::ask(const CloudPoll& poll) {
  for (bool renewed = false;; renewed = true) {
    net::Response reply;
    try {
      reply = send(chosen_, {.url = std::string(poll.path), .headers = chosen_.cloud->headers_with(identity_)});
    } catch (const std::exception& failure) {
      note_failure(net::reason_of(failure));
      return std::nullopt;
    }
    if (reply.status == 200 || (reply.status == 404 && poll.none_is_404)) return reply;
    const bool expired = reply.status == 401 && chosen_.cloud->uses_token() && !renewed;
    if (!expired || probe(chosen_) != Found::here) {
      note_failure("status " + std::to_string(reply.status));
      return std::nullopt;
    }
  }
}

void NoticeWatcher::Poller::follow(const CloudPoll& poll, const net::Response& reply, Clock::time_point asked,
                                   Track& track) {
  failures_in_a_row_ = 0;
  const PollContext context{.identity = identity_, .has_gpu = options_.has_gpu};
  const Reading reading = reply.status == 404 ? Reading{} : poll.read(reply.body, context);
  switch (reading.kind) {
    case Reading::Kind::junk: {
      if (!std::exchange(track.was_junk, true)) {
        remark(std::string(chosen_.cloud->name) + " metadata: the answer to " + std::string(poll.path) +
               " makes no sense and is taken as no notice: \"" + shown(reply.body) + "\"");
      }
      const std::lock_guard lock(mutex_);
      ++shared_.counts.junk;
      return;
    }
    case Reading::Kind::clear:
      if (track.notice) remark(std::string(chosen_.cloud->name) + " has taken its notice back");
      track.notice.reset();
      track.last_clear = asked;
      return;
    case Reading::Kind::notice:
      return announce(reading, asked, track);
  }
}

void NoticeWatcher::Poller::announce(const Reading& reading, Clock::time_point asked, Track& track) const {
  // A repeated notice does not start anew.
  if (track.notice && track.notice->event == reading.event && track.at == reading.at) return;
  track.at = reading.at;
  track.notice = Notice{std::string(chosen_.cloud->name), reading.event, {}};
  if (!reading.at) {
    // It may have appeared right after the last answer without it.
    track.notice->deadline = track.last_clear.value_or(asked) + seconds(reading.promised_seconds);
    return;
  }
  // A wrong clock makes this time meaningless, so limit it to the longest notice of the cloud.
  const double left = std::chrono::duration<double>(*reading.at - std::chrono::system_clock::now()).count();
  constexpr double kForever = 1e9;
  track.notice->deadline = Clock::now() + seconds(std::clamp(left, 0.0, std::min(reading.promised_seconds, kForever)));
}

void NoticeWatcher::Poller::note_failure(const std::string& reason) {
  ++failures_in_a_row_;
  if (failures_in_a_row_ == kFailuresBeforeRemark && !std::exchange(failure_said_, true)) {
    remark(std::string(chosen_.cloud->name) + " metadata does not answer (" + reason +
           "); training goes on, and it is asked again");
  }
  const std::lock_guard lock(mutex_);
  ++shared_.counts.failed;
}

/// Publishes the soonest notice of all polls.
void NoticeWatcher::Poller::publish() {
  std::optional<Notice> soonest;
  for (const Track& track : tracks_) {
    if (track.notice && (!soonest || track.notice->deadline < soonest->deadline)) soonest = track.notice;
  }
  const std::lock_guard lock(mutex_);
  shared_.notice = std::move(soonest);
  ++shared_.counts.polls;
}

void NoticeWatcher::Poller::settle(std::string description) {
  {
    const std::lock_guard lock(mutex_);
    shared_.description = std::move(description);
    shared_.is_known = true;
  }
  known_.notify_all();
}

void NoticeWatcher::Poller::remark(std::string text) {
  const std::lock_guard lock(mutex_);
  shared_.remarks.push_back(std::move(text));
}

NoticeWatcher::NoticeWatcher(Options options) {
  try {
    poller_ = std::make_unique<Poller>(std::move(options));
  } catch (const std::exception& error) {  // training works without a thread or descriptor for this
    failure_ = std::string("not watched: ") + error.what();
  }
}

NoticeWatcher::~NoticeWatcher() = default;

std::optional<Notice> NoticeWatcher::notice() const { return poller_ ? poller_->notice() : std::nullopt; }
std::vector<std::string> NoticeWatcher::take_remarks() {
  return poller_ ? poller_->take_remarks() : std::vector<std::string>();
}
std::string NoticeWatcher::description() const { return poller_ ? poller_->description() : failure_; }
bool NoticeWatcher::wait_until_known(double seconds) const { return !poller_ || poller_->wait_until_known(seconds); }
NoticeWatcher::Counts NoticeWatcher::counts() const { return poller_ ? poller_->counts() : Counts{}; }

}  // namespace gputrain::cloud

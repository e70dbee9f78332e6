#include "heartbeat_listener.hpp"

#include <fcntl.h>

#include <utility>

#include <nlohmann/json.hpp>

namespace gputrain::comm {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // queued for one rank
constexpr size_t kMostStrangers = 64;   // besides one per rank

}  // namespace

HeartbeatLink::HeartbeatLink(int descriptor)
    : in(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0), LineReader::kLongestOfStrangers), out(descriptor, kMostBytes) {}

void HeartbeatLink::add_to(Poll& poll) const {
  poll.add(in.descriptor());
  poll.add(out.wants(), POLLOUT);
}

std::string hello_of(int rank, const std::string& secret) {
  return nlohmann::json{{"hello", rank}, {"secret", secret}}.dump();
}

HeartbeatListener::HeartbeatListener(int listener, int ranks, std::string secret, std::chrono::milliseconds silence)
    : acceptor_(listener),
      secret_(std::move(secret)),
      silence_(silence),
      most_strangers_(kMostStrangers + static_cast<size_t>(ranks)) {
  if (listener < 0) return;
  for (int rank = 1; rank < ranks; ++rank) awaited_.emplace(rank, Clock::now());
}

void HeartbeatListener::add_to(Poll& poll) const {
  acceptor_.add_to(poll);
  for (const auto& stranger : strangers_) stranger->add_to(poll);
}

void HeartbeatListener::accept() {
  for (int descriptor; (descriptor = acceptor_.next()) >= 0;) {
    strangers_.push_back(std::make_unique<HeartbeatLink>(descriptor));
    if (strangers_.size() > most_strangers_) strangers_.erase(strangers_.begin());
  }
}

std::vector<HeartbeatListener::Arrival> HeartbeatListener::attend() {
  accept();
  std::vector<Arrival> arrivals;
  for (auto& stranger : strangers_) {
    std::vector<std::string> lines;
    stranger->in.read([&](std::string_view line) { lines.emplace_back(line); });
    const bool is_old = Clock::now() - stranger->heard > silence_;
    int rank = 0;
    if (!lines.empty() && is_awaited(lines.front(), rank)) {
      awaited_.erase(rank);
      stranger->in.set_longest_line(LineReader::kLongestLine);
      lines.erase(lines.begin());
      arrivals.push_back({.rank = rank, .link = std::move(stranger), .lines = std::move(lines)});
    } else if (!lines.empty() || is_old || stranger->in.is_at_end()) {
      stranger.reset();
    }
  }
  std::erase(strangers_, nullptr);
  return arrivals;
}

bool HeartbeatListener::is_awaited(const std::string& hello, int& rank) const {
  try {
    const auto said = nlohmann::json::parse(hello);
    rank = said.at("hello");
    return said.at("secret") == secret_ && awaited_.contains(rank);
  } catch (const nlohmann::json::exception&) {  // not a rank of this job
    return false;
  }
}

std::vector<int> HeartbeatListener::overdue() const {
  std::vector<int> ranks;
  for (const auto& [rank, since] : awaited_) {
    if (Clock::now() - since > silence_) ranks.push_back(rank);
  }
  return ranks;
}

void HeartbeatListener::restart_timeouts() {
  for (auto& [rank, since] : awaited_) since = Clock::now();
}

}  // namespace gputrain::comm

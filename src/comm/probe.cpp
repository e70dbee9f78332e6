#include "probe.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <system_error>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "store_rendezvous.hpp"

namespace gputrain::comm {
namespace {

using PollClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAnswerTime{5}, kRendezvousTime{20};

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::vector<uint8_t> write_endpoint(const Endpoint& endpoint) {
  return bytes_of(endpoint.address + '\n' + std::to_string(endpoint.port) + '\n' + endpoint.secret + '\n');
}

Endpoint read_endpoint(const std::vector<uint8_t>& bytes) {
  std::istringstream text(std::string(bytes.begin(), bytes.end()));
  Endpoint endpoint;
  std::string port;
  std::getline(text, endpoint.address);
  std::getline(text, port);
  std::getline(text, endpoint.secret);
  endpoint.port = static_cast<uint16_t>(std::strtoul(port.c_str(), nullptr, 10));
  return endpoint;
}

/// Writes `own` under this rank's key and returns the texts of all ranks.
std::vector<std::vector<uint8_t>> exchange_texts(c10d::Store& store, const Rendezvous& at, const std::string& key,
                                                 const std::vector<uint8_t>& own) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < at.world_size; ++rank) keys.push_back(key + std::to_string(rank));
  std::vector<std::vector<uint8_t>> texts;
  try {
    store.set(keys[static_cast<size_t>(at.rank)], own);
    store.wait(keys, kRendezvousTime);
    texts = store.multiGet(keys);
    note_read(store, at, key);
  } catch (const std::exception&) {
    throw Error(ExitCode::restart, {.what = "rank " + std::to_string(at.rank) + ": a rank ended while the ranks met",
                                    .hint = "the last lines of its output say why"});
  }
  return texts;
}

/// A connection attempt to another rank.
struct Attempt {
  int rank;
  std::unique_ptr<Descriptor> socket;
  std::string failure;
};

std::vector<Attempt> try_all(const std::vector<Endpoint>& endpoints, const Endpoint& own) {
  std::vector<Attempt> attempts;
  for (size_t rank = 0; rank < endpoints.size(); ++rank) {
    if (endpoints[rank].address == own.address) continue;
    const int socket = begin_connecting(endpoints[rank].address, endpoints[rank].port);
    const std::string failure = socket < 0 ? std::system_category().message(errno) : "";
    attempts.push_back({static_cast<int>(rank), std::make_unique<Descriptor>(socket), failure});
  }
  return attempts;
}

/// Waits until all attempts have succeeded or failed, for at most kAnswerTime.
void wait_for(std::vector<Attempt>& attempts) {
  const auto end = PollClock::now() + kAnswerTime;
  while (true) {
    std::vector<pollfd> open;
    std::vector<Attempt*> whose;
    for (Attempt& attempt : attempts) {
      if (attempt.socket->get() < 0) continue;
      open.push_back({.fd = attempt.socket->get(), .events = POLLOUT, .revents = 0});
      whose.push_back(&attempt);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - PollClock::now()).count();
    if (open.empty() || left <= 0) break;
    if (::poll(open.data(), open.size(), static_cast<int>(left)) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].revents == 0) continue;
      whose[i]->failure = connecting_failure(open[i].fd);
      whose[i]->socket = std::make_unique<Descriptor>(-1);
    }
  }
  for (Attempt& attempt : attempts) {
    if (attempt.socket->get() >= 0) attempt.failure = "no answer in " + std::to_string(kAnswerTime.count()) + " s";
  }
}

[[noreturn]] void tell_closed_ways(const Rendezvous& at, const std::string& ways, const std::string& own_address) {
  const std::string first = ways.substr(0, ways.find('\n'));
  const bool tells_all = at.rank == 0 && ways != first;
  throw Error(ExitCode::environment,
              {.what = tells_all ? "ranks cannot reach each other:\n    " + ways : first,
               .hint = "open all TCP ports between these hosts in both directions, on the network that leads to "
                       "MASTER_ADDR (here " +
                       interface_of(own_address) + ", " + own_address +
                       "), or set MASTER_ADDR to an address in another network"});
}

}  // namespace

Endpoint probe(c10d::Store& store, const Rendezvous& at, const std::vector<std::string>& hosts, const Endpoint& own) {
  constexpr size_t kMostTold = 16;
  std::vector<Endpoint> endpoints;
  for (const auto& text : exchange_texts(store, at, "post/", write_endpoint(own)))
    endpoints.push_back(read_endpoint(text));
  const bool is_one_host =
      std::ranges::all_of(endpoints, [&](const Endpoint& endpoint) { return endpoint.address == own.address; });
  if (is_one_host) return endpoints.front();
  std::vector<Attempt> attempts = try_all(endpoints, own);
  wait_for(attempts);
  const auto name = [&](int rank) {
    return "rank " + std::to_string(rank) + " on " + hosts[static_cast<size_t>(rank)];
  };
  std::string failures;
  for (const Attempt& attempt : attempts) {
    if (attempt.failure.empty()) continue;
    failures += name(at.rank) + " cannot reach " + name(attempt.rank) + " at " +
                endpoints[static_cast<size_t>(attempt.rank)].text() + " (" + attempt.failure + ")\n";
  }
  std::string ways;
  size_t told = 0;
  for (const auto& text : exchange_texts(store, at, "reached/", bytes_of(failures + '\n'))) {
    std::istringstream lines(std::string(text.begin(), text.end()));
    for (std::string line; std::getline(lines, line) && !line.empty(); ++told) {
      if (told < kMostTold) ways += (ways.empty() ? "" : "\n    ") + line;
    }
  }
  if (told > kMostTold) ways += "\n    and " + std::to_string(told - kMostTold) + " more";
  if (told > 0) tell_closed_ways(at, ways, own.address);
  return endpoints.front();
}

int connect_to(const Endpoint& endpoint) {
  Descriptor socket(begin_connecting(endpoint.address, endpoint.port));
  pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  const auto patience = std::chrono::milliseconds(kAnswerTime).count();
  const bool is_decided = socket.get() >= 0 && ::poll(&ready, 1, static_cast<int>(patience)) > 0;
  const std::string failure = is_decided ? connecting_failure(socket.get()) : "no answer";
  if (failure.empty()) return socket.release();
  throw Error(ExitCode::restart, {.what = "rank 0 cannot be reached at " + endpoint.text() + ": " + failure,
                                  .hint = "if it has ended, the last lines of its output say why"});
}

}  // namespace gputrain::comm

#include "await_store.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <future>
#include <random>
#include <system_error>

#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/reminder.hpp"
#include "port_owner.hpp"

namespace gputrain::comm {
namespace {

constexpr std::chrono::seconds kOneTry{1}, kOneLateTry{5};
constexpr std::chrono::milliseconds kBeforeNextTry{250}, kBeforeNextLookUp{1000};

/// The result of one try: a store, or the obstacle, or the words of another service.
struct Finding {
  bool is_store = false;
  std::string obstacle = {}, words = {};
};

bool becomes_ready(int descriptor, short events, Clock::time_point latest) {
  while (Clock::now() < latest) {
    Poll poll;
    poll.add(descriptor, events);
    poll.wake_at(latest);
    poll.wait();
    if (poll.is_ready(descriptor)) return true;
  }
  return false;
}

/// Returns the first bytes that come, at most `most`; less at the end of the stream or at `latest`.
std::string receive(int socket, size_t most, Clock::time_point latest) {
  std::string bytes(most, '\0');
  size_t count = 0;
  while (count < most && becomes_ready(socket, POLLIN, latest)) {
    const ssize_t more = ::recv(socket, bytes.data() + count, most - count, 0);
    if (more <= 0) break;
    count += static_cast<size_t>(more);
  }
  bytes.resize(count);
  return bytes;
}

template <class Value>
void append(std::string& bytes, Value value) {
  std::array<char, sizeof value> raw{};
  std::memcpy(raw.data(), &value, sizeof value);
  bytes.append(raw.data(), raw.size());
}

/// Returns the first message of c10d's client; a store answers with the number.
std::string greeting(uint32_t number) {
  using c10d::detail::QueryType;
  std::string bytes;
  append(bytes, QueryType::VALIDATE);
  append(bytes, c10d::detail::validationMagicNumber);
  append(bytes, QueryType::PING);
  append(bytes, number);
  return bytes;
}

Finding greet(int socket, Clock::time_point latest) {
  constexpr size_t kMostWords = 80;
  const uint32_t number = std::random_device{}();
  const std::string words = greeting(number);
  std::string expected;
  append(expected, number);
  if (::send(socket, words.data(), words.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(words.size()))
    return {.obstacle = std::system_category().message(errno)};
  std::string answer = receive(socket, expected.size(), latest);
  if (answer == expected) return {.is_store = true};
  if (answer.empty()) return {.obstacle = Clock::now() < latest ? "it closes the connection" : "it does not answer"};
  answer += receive(socket, kMostWords, std::min(latest, Clock::now() + kBeforeNextTry));
  return {.words = printable(answer.substr(0, answer.find_first_of("\r\n", 1)))};
}

Finding try_store(const std::string& address, uint16_t port, Clock::time_point latest) {
  const Descriptor socket(begin_connecting(address, port));
  if (socket.get() < 0) return {.obstacle = std::system_category().message(errno)};
  if (!becomes_ready(socket.get(), POLLOUT, latest)) return {.obstacle = "no answer"};
  const std::string failure = connecting_failure(socket.get());
  return failure.empty() ? greet(socket.get(), latest) : Finding{.obstacle = failure};
}

/// Returns " (process 4711, sshd)" if a process of this host listens there.
std::string owner_of(const std::string& address, uint16_t port) {
  const std::string owner = is_own_address(address) ? port_owner(port) : "";
  return owner.empty() ? "" : " (" + owner + ")";
}

/// Returns "rank 0 at node0 (10.0.0.4) port 29500"
std::string whereabouts(const Rendezvous& at, const std::string& address) {
  const bool is_named = !at.master_address.empty() && at.master_address != address;
  return std::string(at.store_is_running ? "the launcher's store" : "rank 0") + " at " +
         (is_named ? at.master_address + " (" + address + ")" : address) + " port " + std::to_string(at.master_port);
}

std::string self(const Rendezvous& at) { return "rank " + std::to_string(at.rank); }

std::string in_seconds(std::chrono::milliseconds time) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(time).count()) + " s";
}

}  // namespace

std::string await_address(const Rendezvous& at, const GroupOptions& options) {
  const auto end = Clock::now() + options.start_deadline;
  Reminder reminder(options.patience);
  std::string obstacle = "the name servers have not answered";
  const auto tell = [&] {
    if (reminder.is_due() && options.on_waiting)
      options.on_waiting(self(at) + " waits for the address of MASTER_ADDR=" + at.master_address + ": " + obstacle);
  };
  while (true) {
    auto address = std::async(std::launch::async, [&at] { return rendezvous_address(at); });
    while (address.wait_until(reminder.next()) != std::future_status::ready) tell();
    try {
      return address.get();
    } catch (const UnknownName& unknown) {
      if (Clock::now() + kBeforeNextLookUp > end) throw;
      obstacle = unknown.parts().what;
    }
    tell();
    becomes_ready(-1, 0, Clock::now() + kBeforeNextLookUp);
  }
}

void await_store(const Rendezvous& at, const std::string& address, const GroupOptions& options) {
  const std::string place = whereabouts(at, address);
  const auto owner = [&] { return owner_of(address, at.master_port); };
  const auto end = Clock::now() + options.start_deadline;
  auto one_try = kOneTry;
  Reminder reminder(options.patience);
  Finding found;
  do {
    found = try_store(address, at.master_port, std::min(end, Clock::now() + one_try));
    if (found.is_store) return;
    if (!found.words.empty()) {
      throw Error(ExitCode::environment,
                  {.what = self(at) + " looks for " + place + ", but another service" + owner() +
                           " answers there: " + found.words,
                   .hint = "check MASTER_ADDR and MASTER_PORT, or choose a port that nothing else uses on that host"});
    }
    if (reminder.is_due()) {
      one_try = kOneLateTry;
      if (options.on_waiting) options.on_waiting(self(at) + " waits for " + place + ": " + found.obstacle + owner());
    }
    becomes_ready(-1, 0, std::min(end, Clock::now() + kBeforeNextTry));
  } while (Clock::now() < end);
  throw Error(ExitCode::restart, {.what = self(at) + " cannot reach " + place + " within " +
                                          in_seconds(options.start_deadline) + ": " + found.obstacle + owner(),
                                  .hint = "check that rank 0 runs, that MASTER_ADDR and MASTER_PORT are its own, and "
                                          "that no firewall blocks the port"});
}

}  // namespace gputrain::comm

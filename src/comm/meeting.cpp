#include "meeting.hpp"

#include <unistd.h>

#include <array>
#include <sstream>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "connection.hpp"
#include "gputrain/core/error.hpp"
#include "sockets.hpp"

namespace gputrain::comm {
namespace {

struct Arrival {
  std::string host, device_kind;
  int world_size = 0;
};

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string write_down(const Arrival& arrival) {
  return arrival.host + ' ' + arrival.device_kind + ' ' + std::to_string(arrival.world_size);
}

Arrival read_back(const std::string& text) {
  Arrival arrival;
  std::istringstream(text) >> arrival.host >> arrival.device_kind >> arrival.world_size;
  return arrival;
}

std::string key_of(int rank) { return "arrived/" + std::to_string(rank); }

std::string missing_ranks(c10d::Store& store, int world_size) {
  constexpr int kMostNamed = 16;
  std::string missing;
  int count = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    if (store.check({key_of(rank)})) continue;
    if (++count <= kMostNamed) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  return missing + (count > kMostNamed ? ", ..." : "");
}

std::string seconds_of(std::chrono::milliseconds time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

void wait_for_all(c10d::Store& store, const Rendezvous& at, std::chrono::milliseconds deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < at.world_size; ++rank) keys.push_back(key_of(rank));
  try {
    store.wait(keys, deadline);
  } catch (const std::exception&) {
    std::string missing;
    try {
      missing = missing_ranks(store, at.world_size);
    } catch (const std::exception&) {
      throw Error(ExitCode::restart, {.what = "rank " + std::to_string(at.rank) + ": rank 0 ended while the ranks met",
                                      .hint = "its own last lines say why"});
    }
    throw Error(ExitCode::restart,
                {.what = "rank " + std::to_string(at.rank) + " waited " + seconds_of(deadline) + " in vain for rank " +
                         missing + " of " + std::to_string(at.world_size),
                 .hint = "see whether they were started, with the same MASTER_ADDR and MASTER_PORT"});
  }
}

}  // namespace

std::string meeting_address(const Rendezvous& at) {
  std::string address = resolve(at.master_address);
  const bool spans_hosts = at.world_size > at.local_world_size;
  // A host's own name often stands for its loopback, and a service name for nobody's address: rank 0 then serves the
  // address the outside reaches it by.
  if ((spans_hosts && is_loopback(address)) || (at.rank == 0 && !at.store_is_running && !is_own_address(address))) {
    std::string outward = outward_address();
    if (outward.empty()) {
      throw Error(ExitCode::environment,
                  {.what = "MASTER_ADDR=" + at.master_address + " is " + address +
                           ", which other hosts cannot reach, and this host has no other address",
                   .hint = "set MASTER_ADDR to the address of rank 0's host in the ranks' network"});
    }
    return outward;
  }
  return address;
}

c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& at, const std::string& address,
                                           std::chrono::milliseconds deadline) {
  c10d::TCPStoreOptions options;
  options.port = at.master_port;
  options.timeout = deadline;
  options.waitWorkers = false;  // meet() waits, and can say for whom
  if (at.rank == 0 && !at.store_is_running) {
    // c10d's own server socket would listen on every interface of the host.
    ListeningSocket socket(address, at.master_port);
    options.isServer = true;
    options.masterListenFd = socket.release();
  }
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(address, options);
    return c10::make_intrusive<c10d::PrefixStore>("gputrain/" + at.attempt, std::move(store));
  } catch (const std::exception& error) {
    throw Error(ExitCode::restart, {.what = "rank " + std::to_string(at.rank) + " cannot reach rank 0 at " + address +
                                            " port " + std::to_string(at.master_port) + " within " +
                                            seconds_of(deadline) + ": " + plain_message(error),
                                    .hint = "see whether rank 0 runs, and whether a firewall lies between"});
  }
}

std::vector<std::string> meet(c10d::Store& store, const Rendezvous& at, const std::string& device_kind,
                              std::chrono::milliseconds deadline) {
  if (store.add("claimed/" + std::to_string(at.rank), 1) > 1) {
    throw Error(ExitCode::usage, {.what = "two processes say RANK=" + std::to_string(at.rank),
                                  .hint = "the job was started twice, or two jobs use " + at.master_address + " port " +
                                          std::to_string(at.master_port)});
  }
  const Arrival own{host_name(), device_kind, at.world_size};
  const std::string text = write_down(own);
  store.set(key_of(at.rank), std::vector<uint8_t>(text.begin(), text.end()));
  wait_for_all(store, at, deadline);

  std::vector<std::string> hosts;
  for (int rank = 0; rank < at.world_size; ++rank) {
    const std::vector<uint8_t> bytes = store.get(key_of(rank));
    const Arrival other = read_back(std::string(bytes.begin(), bytes.end()));
    if (other.world_size != own.world_size || other.device_kind != own.device_kind) {
      throw Error(ExitCode::usage, {.what = "the ranks contradict each other: rank " + std::to_string(at.rank) +
                                            " says WORLD_SIZE=" + std::to_string(own.world_size) + " on " +
                                            own.device_kind + ", rank " + std::to_string(rank) + " says WORLD_SIZE=" +
                                            std::to_string(other.world_size) + " on " + other.device_kind,
                                    .hint = "start all ranks with the same job and world size"});
    }
    hosts.push_back(other.host);
  }
  return hosts;
}

}  // namespace gputrain::comm

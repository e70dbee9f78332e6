#include "store_rendezvous.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "await_store.hpp"
#include "connection.hpp"
#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/reminder.hpp"

namespace gputrain::comm {
namespace {

/// The facts about itself that a rank writes into the store.
struct Arrival {
  std::string host, device_kind, gpu, job, program, run;
  int world_size = 0;
  int64_t process = 0;

  std::string text() const { return "process " + std::to_string(process) + " on " + host; }
};

std::vector<uint8_t> write_down(const Arrival& arrival) {
  const std::string text = arrival.host + '\n' + arrival.device_kind + '\n' + arrival.gpu + '\n' +
                           std::to_string(arrival.world_size) + '\n' + std::to_string(arrival.process) + '\n' +
                           arrival.job + '\n' + arrival.program + '\n' + arrival.run + '\n';
  return {text.begin(), text.end()};
}

Arrival read_back(const std::vector<uint8_t>& bytes) {
  std::istringstream text(std::string(bytes.begin(), bytes.end()));
  Arrival arrival;
  std::string number;
  std::getline(text, arrival.host);
  std::getline(text, arrival.device_kind);
  std::getline(text, arrival.gpu);
  if (std::getline(text, number)) arrival.world_size = static_cast<int>(std::strtol(number.c_str(), nullptr, 10));
  if (std::getline(text, number)) arrival.process = std::strtoll(number.c_str(), nullptr, 10);
  std::getline(text, arrival.job);
  std::getline(text, arrival.program);
  std::getline(text, arrival.run);
  return arrival;
}

std::string key_of(int rank) { return "arrived/" + std::to_string(rank); }

std::vector<std::string> keys_of_all(int world_size) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size; ++rank) keys.push_back(key_of(rank));
  return keys;
}

struct Missing {
  int count = 0;
  std::string ranks;  // "2, 5", the first 16
};

Missing missing_ranks(c10d::Store& store, int world_size) {
  constexpr int kMostNamed = 16;
  Missing missing;
  for (int rank = 0; rank < world_size; ++rank) {
    if (store.check({key_of(rank)})) continue;
    if (++missing.count <= kMostNamed) missing.ranks += (missing.count == 1 ? "" : ", ") + std::to_string(rank);
  }
  if (missing.count > kMostNamed) missing.ranks += ", ...";
  return missing;
}

std::string seconds_of(std::chrono::milliseconds time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

[[noreturn]] void fail_in_vain(c10d::Store& store, const Rendezvous& at, std::chrono::milliseconds deadline) {
  Missing missing;
  try {
    missing = missing_ranks(store, at.world_size);
  } catch (const std::exception&) {  // the store has gone
  }
  if (missing.count == 0) {
    throw Error(ExitCode::restart, {.what = "rank " + std::to_string(at.rank) + ": rank 0 ended while the ranks met",
                                    .hint = "the last lines of its output say why"});
  }
  throw Error(ExitCode::restart,
              {.what = "rank " + std::to_string(at.rank) + " waited " + seconds_of(deadline) + ", but rank " +
                       missing.ranks + " of " + std::to_string(at.world_size) + " did not come",
               .hint = "check that all ranks were started, with the same MASTER_ADDR and MASTER_PORT"});
}

/// Reports which ranks are missing: each state, and the same one again once a minute.
class Waiting {
 public:
  Waiting(c10d::Store& store, const Rendezvous& at, const GroupOptions& options)
      : store_(store), at_(at), options_(options), reminder_(options.patience) {}

  bool is_reported() const { return at_.rank == 0 && options_.on_waiting != nullptr; }

  void tell() {
    const Missing missing = missing_ranks(store_, at_.world_size);
    if (missing.count == 0 || (!reminder_.is_due() && missing.ranks == last_)) return;
    last_ = missing.ranks;
    options_.on_waiting(std::to_string(at_.world_size - missing.count) + "/" + std::to_string(at_.world_size) +
                        " ranks, waiting for rank " + missing.ranks + " at " + at_.master_address + " port " +
                        std::to_string(at_.master_port));
  }

 private:
  c10d::Store& store_;
  const Rendezvous& at_;
  const GroupOptions& options_;
  Reminder reminder_;
  std::string last_;
};

void wait_for_all(c10d::Store& store, const Rendezvous& at, const GroupOptions& options) {
  using std::chrono::milliseconds;
  const auto keys = keys_of_all(at.world_size);
  Waiting waiting(store, at, options);
  const auto end = std::chrono::steady_clock::now() + options.start_deadline;
  while (true) {
    const auto left =
        std::max(std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now()), milliseconds(1));
    const bool is_last = !waiting.is_reported() || left <= options.patience;
    try {
      store.wait(keys, is_last ? left : options.patience);
      return;
    } catch (const std::exception&) {
      if (is_last) throw;
    }
    waiting.tell();
  }
}

/// Checks that the store is this job's, before anything is written into it. Rank 0 writes its entry when it serves.
void check_job(c10d::Store& store, const Rendezvous& at, const Arrival& own, const GroupOptions& options) {
  if (at.rank == 0 || at.store_is_running || own.job.empty()) return;
  store.wait({key_of(0)}, options.start_deadline);
  const Arrival first = read_back(store.get(key_of(0)));
  if (first.job.empty() || first.job == own.job) return;
  throw Error(ExitCode::usage,
              {.what = at.master_address + " port " + std::to_string(at.master_port) +
                       " is used by another job: " + first.job + ", " + first.text() + "; this job is " + own.job,
               .hint = "choose another MASTER_PORT for one of them"});
}

/// Allows one process per rank: throws in the second, and names the first if it is known yet.
void claim_rank(c10d::Store& store, const Rendezvous& at, const Arrival& own) {
  const std::string rank = std::to_string(at.rank);
  if (store.add("claimed/" + rank, 1) == 1) return;
  std::string what = "two processes have RANK=" + rank + ": this one, " + own.text() + ", and an earlier one";
  if (store.check({key_of(at.rank)})) what += ", " + read_back(store.get(key_of(at.rank))).text();
  throw Error(ExitCode::usage, {.what = std::move(what),
                                .hint = "the job was started twice, or two jobs use " + at.master_address + " port " +
                                        std::to_string(at.master_port)});
}

/// Throws if two ranks do not belong together, with the values of both.
void check_equal(const Rendezvous& at, const Arrival& own, int rank, const Arrival& other) {
  const auto contradict = [&](const std::string& own_value, const std::string& other_value, const std::string& hint) {
    if (own_value == other_value) return;
    throw Error(ExitCode::usage, {.what = "the ranks contradict each other: rank " + std::to_string(at.rank) + " on " +
                                          own.host + " has " + own_value + ", rank " + std::to_string(rank) + " on " +
                                          other.host + " has " + other_value,
                                  .hint = hint});
  };
  const auto size_of = [](const Arrival& one) {
    return "WORLD_SIZE=" + std::to_string(one.world_size) + " on " + one.device_kind;
  };
  contradict(own.program, other.program, "install the same version on every host");
  contradict(own.run, other.run, "start all ranks with the same job file and the same --set");
  contradict(size_of(own), size_of(other), "start all ranks with the same job and world size");
}

/// Checks that each rank has its own GPU: NCCL does not allow two ranks on one.
void check_gpu(const Rendezvous& at, const Arrival& own, int rank, const Arrival& other) {
  if (rank == at.rank || own.gpu.empty() || own.gpu != other.gpu) return;
  throw Error(ExitCode::environment,
              {.what = "two ranks have the same GPU: rank " + std::to_string(std::min(at.rank, rank)) + " and rank " +
                       std::to_string(std::max(at.rank, rank)) + " on " + own.host,
               .hint = "start at most one rank per GPU of a host; CUDA_VISIBLE_DEVICES must give each rank all GPUs, "
                       "or one GPU of its own"});
}

std::vector<std::string> meet(c10d::Store& store, const Rendezvous& at, const GroupOptions& options) {
  const Arrival own{.host = host_name(),
                    .device_kind = options.device.is_cpu() ? "cpu" : "cuda",
                    .gpu = options.gpu,
                    .job = at.job,
                    .program = options.program,
                    .run = options.run,
                    .world_size = at.world_size,
                    .process = ::getpid()};
  check_job(store, at, own, options);
  claim_rank(store, at, own);
  store.set(key_of(at.rank), write_down(own));
  wait_for_all(store, at, options);

  std::vector<Arrival> all;
  for (const auto& text : store.multiGet(keys_of_all(at.world_size))) all.push_back(read_back(text));
  note_read(store, at, "arrived");
  std::vector<std::string> hosts;
  for (int rank = 0; rank < at.world_size; ++rank) {
    const Arrival& other = all[static_cast<size_t>(rank)];
    check_equal(at, own, rank, other);
    check_gpu(at, own, rank, other);
    hosts.push_back(other.host);
  }
  return hosts;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& at, const std::string& address,
                                           const GroupOptions& options) {
  c10d::TCPStoreOptions tcp;
  tcp.port = at.master_port;
  tcp.timeout = options.start_deadline;
  tcp.waitWorkers = false;  // store_rendezvous() waits, and can name the missing ranks
  tcp.isServer = at.rank == 0 && !at.store_is_running;
  if (tcp.isServer) {
    // c10d's own server socket would listen on every interface of the host.
    ListeningSocket socket(address, at.master_port);
    tcp.masterListenFd = socket.release();
  } else {
    await_store(at, address, options);
  }
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(address, tcp);
    return c10::make_intrusive<c10d::PrefixStore>("gputrain/" + at.attempt, std::move(store));
  } catch (const std::exception& error) {
    throw Error(ExitCode::restart, {.what = "rank " + std::to_string(at.rank) + " cannot reach rank 0 at " + address +
                                            " port " + std::to_string(at.master_port) + " within " +
                                            seconds_of(options.start_deadline) + ": " + plain_message(error),
                                    .hint = "check that rank 0 runs and that no firewall blocks the port"});
  }
}

std::vector<std::string> store_rendezvous(c10d::Store& store, const Rendezvous& at, const GroupOptions& options) {
  try {
    return meet(store, at, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // thrown by c10d: rank 0 has ended, or the time is over
    fail_in_vain(store, at, options.start_deadline);
  }
}

void note_read(c10d::Store& store, const Rendezvous& at, const std::string& round) {
  constexpr std::chrono::seconds kPatience{5};
  std::vector<std::string> keys;
  for (int rank = 0; rank < at.world_size; ++rank) keys.push_back("read/" + round + "/" + std::to_string(rank));
  store.set(keys[static_cast<size_t>(at.rank)], std::vector<uint8_t>{1});
  if (at.rank != 0) return;
  try {
    store.wait(keys, kPatience);
  } catch (const std::exception&) {
    // A late rank has ended, or will report an error itself.
  }
}

}  // namespace gputrain::comm

#include "gputrain/comm/group.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/util/Exception.h>

#include "connection.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/out_of_memory.hpp"
#include "gputrain/device/runtime.hpp"
#include "nccl.hpp"

namespace gputrain::comm {
namespace {

using Clock = std::chrono::steady_clock;

std::string seconds_text(Clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

/// A collective of this rank, from its call to its end.
struct CollectiveInFlight {
  const std::string& what;
  int64_t number;
  Clock::time_point start;
};

[[noreturn]] void tell_failure(Connection& connection, const CollectiveInFlight& in_flight, const std::string& cause) {
  connection.failed = true;
  const auto time = Clock::now() - in_flight.start;
  const auto verdict = connection.detector->explain(
      {.message = cause,
       .in = AwaitedCollective{in_flight.number == 0 ? "" : connection.name, in_flight.number, in_flight.what,
                               std::chrono::duration<double>(time).count(), connection.detector->rank()}});
  const int rank = connection.detector->rank();
  const std::string happening =
      in_flight.what + " failed after " + seconds_text(time) + " (deadline " + seconds_text(connection.deadline) + ")";
  if (verdict) {
    if (!allows_restart(verdict->code)) let_the_cause_be_found_first();
    throw verdict->error_of(rank, happening);
  }
  throw Error(
      ExitCode::restart,
      {.what = "rank " + std::to_string(rank) + ": " + happening + ": " + cause,
       .hint = "most likely another rank has ended or hangs: the last lines of its output say why; a restart goes "
               "on from the newest checkpoint"});
}

/// Throws if the group has failed; a group without peers never fails.
void check_group(Connection& connection, const CollectiveInFlight& in_flight) {
  if (!connection.detector) return;
  if (connection.detector->verdict()) tell_failure(connection, in_flight, "");
  check_nccl(connection);
}

/// `tensor`: the data; undefined for a barrier.
template <class Start>
Pending start_transfer(const std::shared_ptr<Connection>& connection, std::string what, const at::Tensor& tensor,
                       Start start, std::function<void()> finish = {}) {
  what += connection->among;
  const auto now = Clock::now();
  int64_t number = 0;
  // A captured collective does not run yet, and its replays cannot be seen here: do not count it.
  if (connection->detector && !device::is_capturing(connection->device))
    number = connection->detector->collective_log().begin(connection->name, what, tensor);
  const CollectiveInFlight in_flight{what, number, now};
  try {
    check_group(*connection, in_flight);
    auto works = start();
    return Pending(std::make_unique<Transfer>(
        Transfer{connection, std::move(works), std::move(what), number, now, std::move(finish)}));
  } catch (const c10::DistError& error) {   // any other type means a wrong argument: a bug
    if (device::shortage_of(error)) throw;  // no rank is lost: NCCL has no memory on this one
    tell_failure(*connection, in_flight, plain_message(error));
  }
}

// A wait in Gloo cannot be cancelled: wait in short slices and check the group between them.
bool wait_in_slices(const Transfer& transfer, const c10::intrusive_ptr<c10d::Work>& work,
                    const CollectiveInFlight& in_flight) {
  constexpr std::chrono::milliseconds kSlice{250};
  const auto& connection = transfer.connection;
  if (!connection->detector) return work->wait();
  CollectiveLog& collective_log = connection->detector->collective_log();
  if (!work->isCompleted()) collective_log.wait_for({connection->name, transfer.number, transfer.what});
  while (!work->isCompleted()) {
    try {
      work->wait(kSlice);  // also after a verdict: the rank that has failed may have done its part of this collective
    } catch (const std::exception&) {
      // The slice is over, or the work has failed; then the wait after the loop throws.
    }
    if (!work->isCompleted()) check_group(*connection, in_flight);
  }
  const bool is_done = work->wait();
  collective_log.waited();  // not of one that failed: for the others, this rank still waits
  return is_done;
}

template <class Options>
Options with_deadline(const Connection& connection) {
  Options options;
  options.timeout = connection.deadline;
  return options;
}

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

Works one(c10::intrusive_ptr<c10d::Work> work) { return {std::move(work)}; }

/// Up to so many ranks, an all-gather by Gloo costs more than their broadcasts: it copies everything twice more.
constexpr int kFewRanks = 4;

Works broadcast_each(const Connection& connection, const at::Tensor& parts, const at::Tensor& own) {
  const std::vector<at::Tensor> each = parts.view(-1).chunk(connection.backend->getSize());
  const int rank = connection.backend->getRank();
  if (!own.is_alias_of(parts)) each[static_cast<size_t>(rank)].copy_(own.view(-1));
  Works works;
  for (size_t root = 0; root < each.size(); ++root) {
    std::vector<at::Tensor> tensors{each[root]};
    auto options = with_deadline<c10d::BroadcastOptions>(connection);
    options.rootRank = static_cast<int64_t>(root);
    works.push_back(connection.backend->broadcast(tensors, options));
  }
  return works;
}

/// Sends half of what Gloo's own reduce-scatter sends, which is an all-reduce of a copy, and adds up in the order of
/// the ranks.
Pending exchange_and_sum(const std::shared_ptr<Connection>& connection, std::string what, const at::Tensor& parts,
                         const at::Tensor& own) {
  const int ranks = connection->backend->getSize();
  const auto rank = static_cast<size_t>(connection->backend->getRank());
  const std::vector<at::Tensor> each = parts.view(-1).chunk(ranks);
  // Two ranks each send only the other's part; more ranks send all of their parts, their own to themselves.
  const bool is_pair = ranks == 2;
  at::Tensor sent = is_pair ? each[1 - rank] : parts.view(-1);
  at::Tensor received = at::empty({sent.numel()}, parts.options());
  std::vector<int64_t> counts(each.size(), own.numel());
  if (is_pair) counts[rank] = 0;
  std::vector<int64_t> same_counts = counts;  // the call may empty its arguments
  const auto start = [&] {
    return one(connection->backend->alltoall_base(received, sent, counts, same_counts,
                                                  with_deadline<c10d::AllToAllOptions>(*connection)));
  };
  const auto finish = [received, own = own.view(-1), mine = each[rank], is_pair] {
    const at::NoGradGuard no_grad;
    at::Tensor sum = own;
    if (is_pair) {
      at::add_out(sum, mine, received);
    } else {
      at::sum_out(sum, received.view({-1, own.numel()}), at::IntArrayRef{0});
    }
  };
  return start_transfer(connection, std::move(what), parts, start, finish);
}

void check_tensor(const Connection& connection, const at::Tensor& tensor) {
  GPUTRAIN_ASSERT(tensor.is_contiguous(), "collectives take contiguous tensors");
  GPUTRAIN_ASSERT(tensor.device() == connection.device, "the tensor is on another device than the group");
}

/// NCCL's own message, which c10d puts below the location in its sources; empty: none.
std::string last_error_in(const std::string& text) {
  const std::string before = "\nLast error:\n";
  const size_t found = text.find(before);
  if (found == std::string::npos) return {};
  const std::string rest = text.substr(found + before.size());
  return rest.substr(0, rest.find('\n'));
}

}  // namespace

std::string plain_message(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  const std::string last = last_error_in(text);
  text = text.substr(0, text.find('\n'));
  if (text.starts_with("NCCL error in: ")) text = "NCCL: " + text.substr(std::min(text.size(), text.find(", ") + 2));
  if (!last.empty()) text += ": " + last;
  if (text.starts_with('[')) {
    const size_t end = text.find("] ");
    if (end != std::string::npos) text = text.substr(end + 2);
  }
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  return text;
}

Connection::~Connection() {
  if (!backend) return;
  release_nccl(*this);
  // The destructor would wait for Gloo's stuck threads until their deadline. Leak the backend: the process ends sooner.
  if (is_lost() && device.is_cpu()) static_cast<void>(backend.release());
}

Pending::Pending() noexcept = default;
Pending::Pending(std::unique_ptr<Transfer> transfer) noexcept : transfer_(std::move(transfer)) {}
Pending::Pending(Pending&&) noexcept = default;
Pending& Pending::operator=(Pending&&) noexcept = default;
Pending::~Pending() = default;

void Pending::wait() {
  if (!transfer_) return;
  const auto transfer = std::move(transfer_);
  const CollectiveInFlight in_flight{transfer->what, transfer->number, transfer->start};
  // Gloo throws its own types, c10d others: here each of them means that the group has lost a rank.
  try {
    const bool is_on_gpu = !transfer->connection->device.is_cpu();
    if (is_on_gpu) check_group(*transfer->connection, in_flight);
    for (const auto& work : transfer->works) {
      if (!(is_on_gpu ? work->wait() : wait_in_slices(*transfer, work, in_flight)))
        throw std::runtime_error("it was aborted");
    }
    if (transfer->finish) transfer->finish();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (device::is_capturing(transfer->connection->device)) throw;  // a capture sends nothing, so no rank is lost
    tell_failure(*transfer->connection, in_flight, plain_message(error));
  }
}

Group::Group(std::shared_ptr<Connection> connection) noexcept : connection_(std::move(connection)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

int Group::rank() const noexcept { return connection_ ? connection_->backend->getRank() : 0; }
int Group::size() const noexcept { return connection_ ? connection_->backend->getSize() : 1; }

Pending Group::all_reduce_sum(const at::Tensor& tensor, std::string name) {
  if (!connection_) return {};
  check_tensor(*connection_, tensor);
  return start_transfer(connection_, "all-reduce of " + std::move(name), tensor, [&] {
    std::vector<at::Tensor> tensors{tensor};
    return one(connection_->backend->allreduce(tensors, with_deadline<c10d::AllreduceOptions>(*connection_)));
  });
}

Pending Group::reduce_sum(const at::Tensor& tensor, int root, std::string name) {
  if (!connection_) return {};
  check_tensor(*connection_, tensor);
  return start_transfer(connection_, "reduce of " + std::move(name), tensor, [&] {
    std::vector<at::Tensor> tensors{tensor};
    auto options = with_deadline<c10d::ReduceOptions>(*connection_);
    options.rootRank = root;
    return one(connection_->backend->reduce(tensors, options));
  });
}

Pending Group::reduce_scatter_sum(const at::Tensor& parts, const at::Tensor& own, std::string name) {
  if (!connection_) {
    if (!own.is_alias_of(parts)) own.copy_(parts);
    return {};
  }
  check_tensor(*connection_, parts);
  check_tensor(*connection_, own);
  GPUTRAIN_ASSERT(parts.numel() == size() * own.numel(), "one part for each rank");
  const std::string what = "reduce-scatter of " + std::move(name);
  if (connection_->device.is_cpu()) return exchange_and_sum(connection_, what, parts, own);
  return start_transfer(connection_, what, parts, [&] {
    at::Tensor from = parts, to = own;
    return one(
        connection_->backend->_reduce_scatter_base(to, from, with_deadline<c10d::ReduceScatterOptions>(*connection_)));
  });
}

Pending Group::all_gather_into(const at::Tensor& parts, const at::Tensor& own, std::string name) {
  if (!connection_) {
    if (!own.is_alias_of(parts)) parts.copy_(own);
    return {};
  }
  check_tensor(*connection_, parts);
  check_tensor(*connection_, own);
  GPUTRAIN_ASSERT(parts.numel() == size() * own.numel(), "one part for each rank");
  return start_transfer(connection_, "all-gather of " + std::move(name), own, [&] {
    if (connection_->is_gloo() && size() <= kFewRanks) return broadcast_each(*connection_, parts, own);
    at::Tensor from = own, to = parts;
    return one(connection_->backend->_allgather_base(to, from, with_deadline<c10d::AllgatherOptions>(*connection_)));
  });
}

void Group::broadcast(const at::Tensor& tensor, int root, std::string name) {
  start_broadcast(tensor, root, std::move(name)).wait();
}

namespace {

Pending broadcast_as(const std::shared_ptr<Connection>& connection, std::string what, const at::Tensor& tensor,
                     int root) {
  check_tensor(*connection, tensor);
  return start_transfer(connection, std::move(what), tensor, [&] {
    std::vector<at::Tensor> tensors{tensor};
    auto options = with_deadline<c10d::BroadcastOptions>(*connection);
    options.rootRank = root;
    return one(connection->backend->broadcast(tensors, options));
  });
}

}  // namespace

Pending Group::start_broadcast(const at::Tensor& tensor, int root, std::string name) {
  if (!connection_) return {};
  return broadcast_as(connection_, "broadcast of " + std::move(name), tensor, root);
}

/// Sends by a broadcast, which costs as much as a send if there is one other rank. Unlike a send, it needs no further
/// communicator in NCCL, and in Gloo a wait for it can end early without breaking the connection.
Pending Group::transfer(const at::Tensor& tensor, int from, std::string name) {
  GPUTRAIN_ASSERT(size() == 2, "a transfer has two ends");
  return broadcast_as(connection_, "transfer of " + std::move(name), tensor, from);
}

at::Tensor Group::all_gather(const at::Tensor& tensor, std::string name) {
  if (!connection_) return tensor.unsqueeze(0);
  check_tensor(*connection_, tensor);
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes.insert(sizes.begin(), size());
  at::Tensor all = at::empty({size() * tensor.numel()}, tensor.options());
  start_transfer(connection_, "all-gather of " + std::move(name), tensor, [&] {
    at::Tensor input = tensor.view({-1});
    return one(connection_->backend->_allgather_base(all, input, with_deadline<c10d::AllgatherOptions>(*connection_)));
  }).wait();
  return all.view(sizes);
}

void Group::barrier(std::string name) {
  if (!connection_) return;
  start_transfer(connection_, "barrier " + std::move(name), {}, [&] {
    auto options = with_deadline<c10d::BarrierOptions>(*connection_);
    if (!connection_->device.is_cpu()) options.device = connection_->device;
    return one(connection_->backend->barrier(options));
  }).wait();
}

void Group::check(const std::string& what, Clock::time_point begin) {
  if (!connection_ || !connection_->detector) return;
  const bool is_late = Clock::now() - begin > connection_->deadline;
  const CollectiveInFlight in_flight{what, 0, begin};
  try {
    check_group(*connection_, in_flight);
  } catch (const c10::DistError& error) {
    tell_failure(*connection_, in_flight, plain_message(error));
  }
  if (is_late) tell_failure(*connection_, in_flight, "the GPU has not finished it");
}

}  // namespace gputrain::comm

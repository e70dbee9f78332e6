#include "gputrain/comm/process_groups.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <random>
#include <thread>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <c10/util/Flags.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "await_store.hpp"
#include "connection.hpp"
#include "failure_detector.hpp"
#include "gloo_failure.hpp"
#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/fault.hpp"
#include "gputrain/device/out_of_memory.hpp"
#include "nccl.hpp"
#include "probe.hpp"
#include "store_rendezvous.hpp"

C10_DECLARE_int(caffe2_log_level);

namespace gputrain::comm {
namespace {

// c10d warns on stderr about every retry of a connection; the failures that matter reach us as exceptions.
void quiet_library_logs(int least_level) {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = least_level;
}

/// torchrun polls for ended ranks ten times a second. It blames one of the ranks that it finds together, and that
/// should be the rank that died, not one that ended because of it. A rank that ends by its own error first waits for
/// rank 0 to end.
void let_the_cause_be_found_first() { std::this_thread::sleep_for(std::chrono::milliseconds(750)); }

struct GlooParams {
  int rank = 0, world_size = 1, threads = 1;
  std::string address;                   // of this rank, towards the others
  std::chrono::milliseconds deadline{};  // for connecting; each collective has its own
};

c10::intrusive_ptr<c10d::Backend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store, const GlooParams& params) {
  auto options = c10d::ProcessGroupGloo::Options::create(params.deadline);
  options->threads = params.threads;
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(params.address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, params.rank, params.world_size, options);
}

c10::intrusive_ptr<c10d::Store> part_of(const c10::intrusive_ptr<c10d::Store>& store, const char* name) {
  return c10::make_intrusive<c10d::PrefixStore>(name, store);
}

/// 64 random bits that the ranks share.
std::string new_secret() {
  std::random_device random;
  return std::to_string(random()) + "-" + std::to_string(random());
}

/// Checks that this rank reaches the others, then starts to watch them.
std::shared_ptr<FailureDetector> start_failure_detector(c10d::Store& store, const Rendezvous& at,
                                                        const GroupOptions& options,
                                                        const std::vector<std::string>& hosts,
                                                        const std::string& address) {
  ListeningSocket socket(address, 0);
  const Endpoint own{.address = address, .port = socket.port(), .secret = at.rank == 0 ? new_secret() : ""};
  const Endpoint first = probe(store, at, hosts, own);
  FailureDetector::Options detector{
      .rank = at.rank, .hosts = hosts, .secret = first.secret, .silence = options.silence, .grace = options.grace};
  return std::make_shared<FailureDetector>(std::move(detector), at.rank == 0 ? socket.release() : connect_to(first));
}

/// The error that ends the process if it has to be ended by force.
Error as_error(const std::exception& failure) {
  if (const auto* error = dynamic_cast<const Error*>(&failure)) return *error;
  if (auto fault = device::fault_of(failure)) return *fault;
  return {device::shortage_of(failure) ? ExitCode::environment : ExitCode::internal, {.what = plain_message(failure)}};
}

// Connecting reads what the others wrote into the store, so it fails when one of them ends meanwhile.
template <class Connect>
std::shared_ptr<Connection> connected(Connection properties, Connect connect) {
  auto connection = std::make_shared<Connection>(std::move(properties));
  const int rank = connection->detector->rank();
  try {
    connection->backend = connect();
    return connection;
  } catch (const std::exception& error) {
    if (device::shortage_of(error)) throw;  // out of memory on this rank; no rank has ended
    const std::string happening = "cannot connect to the other ranks";
    const auto verdict = connection->detector->explain({.message = plain_message(error), .in = {}});
    let_the_cause_be_found_first();
    if (verdict) throw verdict->error_of(rank, happening);
    const bool is_nccl = !connection->device.is_cpu();
    throw Error(
        ExitCode::restart,
        {.what = "rank " + std::to_string(rank) + ": " + happening + ": " + plain_message(error),
         .hint = std::string("a rank ended while the ranks met; the last lines of its output say why") +
                 (is_nccl ? "; if none ended, NCCL_DEBUG=WARN shows what NCCL lacks, such as shared memory in a "
                            "container (--shm-size)"
                          : "")});
  }
}

}  // namespace

struct ProcessGroups::Session {
  c10::intrusive_ptr<c10d::Store> store;
  std::shared_ptr<FailureDetector> detector;
};

ProcessGroups::ProcessGroups() : hosts_{"localhost"}, description_("alone") {}
ProcessGroups::~ProcessGroups() = default;
ProcessGroups::ProcessGroups(ProcessGroups&&) noexcept = default;
ProcessGroups& ProcessGroups::operator=(ProcessGroups&&) noexcept = default;

ProcessGroups::ProcessGroups(const Rendezvous& at, const GroupOptions& options) : ProcessGroups() {
  if (at.world_size == 1) return;
  constexpr int kErrors = 2;
  quiet_library_logs(kErrors);
  std::signal(SIGPIPE, SIG_IGN);  // Gloo may write to a dead rank: report that as an error, do not die of it
  const std::string master = await_address(at, options);
  session_ = std::make_unique<Session>(Session{open_store(at, master, options), nullptr});
  const bool on_gpu = !options.device.is_cpu();
  hosts_ = store_rendezvous(*session_->store, at, options);

  const std::string address = source_address_towards(master), interface = interface_of(address);
  const auto detector = session_->detector = start_failure_detector(*session_->store, at, options, hosts_, address);
  survive_gloo_failures(detector);
  const auto part = [&](Channel channel, at::Device device) {
    return Connection{.device = device, .deadline = options.deadline, .detector = detector, .channel = channel};
  };
  GlooParams params{at.rank, at.world_size, 1, address, options.start_deadline};
  control_ = Group(connected(part(Channel::control, at::kCPU),
                             [&] { return connect_gloo(part_of(session_->store, "control"), params); }));
  if (on_gpu) {
    const NcclParams nccl{at.rank, at.world_size, options.device, interface, options.deadline};
    tensors_ = Group(connected(part(Channel::tensors, options.device),
                               [&] { return connect_nccl(part_of(session_->store, "tensors"), nccl); }));
  } else {
    params.threads = 2;  // two buckets at a time
    tensors_ = Group(connected(part(Channel::tensors, at::kCPU),
                               [&] { return connect_gloo(part_of(session_->store, "tensors"), params); }));
  }
  description_ =
      (on_gpu ? nccl_name() + ", control" : std::string("gloo")) + " over " + interface + " (" + address + ")";
}

void ProcessGroups::on_rank_zero(const std::function<void()>& action, std::string name) {
  std::exception_ptr refusal;
  auto code = ExitCode::done;
  try {
    if (rank() == 0) action();
  } catch (const Error& error) {
    refusal = std::current_exception();
    code = error.code();
  }
  const auto told = static_cast<ExitCode>(from_rank_zero(static_cast<int64_t>(code), name));
  if (told == ExitCode::done) return;
  control_.barrier(std::move(name));  // rank 0 must not leave before all ranks have the code
  if (refusal) std::rethrow_exception(refusal);
  throw ReportedElsewhere(Error(told, {.what = "rank 0 failed and reports why"}));
}

int64_t ProcessGroups::from_rank_zero(int64_t number, std::string name) {
  const at::Tensor told = at::full({}, number, at::kLong);
  control_.broadcast(told, 0, std::move(name));
  return told.item<int64_t>();
}

std::string ProcessGroups::from_rank_zero(const std::string& bytes, const std::string& name) {
  std::string told(static_cast<size_t>(from_rank_zero(std::ssize(bytes), name)), '\0');
  if (told.empty()) return told;
  if (rank() == 0) told = bytes;
  control_.broadcast(at::from_blob(told.data(), {std::ssize(told)}, at::kByte), 0, name);
  return told;
}

bool ProcessGroups::holds_everywhere(bool here, std::string name) {
  const at::Tensor exceptions = at::full({1}, here ? 0 : 1, at::kLong);
  control_.all_reduce_sum(exceptions, std::move(name)).wait();
  return exceptions.item<int64_t>() == 0;
}

void ProcessGroups::enter(const char* phase, int64_t step) {
  if (session_) session_->detector->enter(phase, step);
}

void ProcessGroups::leave(const std::exception& failure) {
  if (session_ && session_->detector) session_->detector->leave(plain_message(failure), true);
}

void ProcessGroups::leave() {
  if (session_ && session_->detector) session_->detector->leave("", false);
}

void ProcessGroups::fail(const std::exception& failure) {
  leave(failure);
  if (!session_ || !session_->detector) throw;
  const auto* error = dynamic_cast<const Error*>(&failure);
  const bool is_of_another = error != nullptr && error->code() == ExitCode::restart;
  const bool is_reported = error != nullptr && !is_of_another && !session_->detector->is_reporter();
  session_->detector->end_by(as_error(failure), is_reported);
  if (is_reported) throw ReportedElsewhere(*error);
  if (is_of_another) let_the_cause_be_found_first();
  throw;
}

bool is_reported_by_rank_zero(const Rendezvous& at, const std::string& program, const std::string& words) {
  constexpr int kFatal = 3;
  constexpr std::chrono::seconds kPatience{5};
  if (at.world_size == 1) return false;
  quiet_library_logs(kFatal);  // here a missing rank is no error
  try {
    GroupOptions options{.start_deadline = kPatience, .program = program, .run = words};
    std::replace(options.run.begin(), options.run.end(), '\n', ' ');
    store_rendezvous(*open_store(at, rendezvous_address(at), options), at, options);
    return at.rank != 0;
  } catch (const std::exception&) {  // a rank is missing, or has another mistake
    return false;
  }
}

void ProcessGroups::set_forced_exit_handler(std::function<void(const Error&)> on_forced_exit) {
  if (session_) session_->detector->set_forced_exit_handler(std::move(on_forced_exit));
}

}  // namespace gputrain::comm

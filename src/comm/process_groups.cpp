#include "gputrain/comm/process_groups.hpp"

#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <random>
#include <thread>
#include <typeinfo>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <c10/util/Flags.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "await_store.hpp"
#include "connection.hpp"
#include "detector/failure_detector.hpp"
#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/fault.hpp"
#include "gputrain/device/out_of_memory.hpp"
#include "mesh_groups.hpp"
#include "nccl.hpp"
#include "probe.hpp"
#include "store_rendezvous.hpp"

C10_DECLARE_int(caffe2_log_level);

namespace gputrain::comm {
namespace {

// Global, because a terminate handler takes no arguments.
std::mutex notified_mutex;
std::weak_ptr<FailureDetector> notified_detector;
std::terminate_handler handler_before = nullptr;

std::string current_message() {
  try {
    throw;
  } catch (const std::exception& error) {
    return plain_message(error);
  }
}

/// Returns false if there is no watch.
bool notify_detector() {
  const std::lock_guard lock(notified_mutex);
  const auto detector = notified_detector.lock();
  if (detector) detector->report({.message = current_message(), .in = {}});
  return detector != nullptr;
}

[[noreturn]] void stand_still_or_terminate() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  const bool is_gloo = type != nullptr && std::strstr(type->name(), "gloo") != nullptr;
  if (is_gloo && notify_detector()) {
    while (true) ::pause();
  }
  if (handler_before != nullptr) handler_before();
  std::abort();
}

/// Makes the process survive failures of Gloo. If ranks call a collective with different sizes, Gloo throws on its own
/// thread, where nothing catches it: SIGABRT would end the process. From now on that thread blocks forever instead, and
/// the failure is reported to the watch.
void survive_gloo_failures(const std::shared_ptr<FailureDetector>& detector) {
  const std::lock_guard lock(notified_mutex);
  notified_detector = detector;
  const auto before = std::set_terminate(&stand_still_or_terminate);
  if (before != &stand_still_or_terminate) handler_before = before;
}

// c10d warns on stderr about every retry of a connection; the failures that matter reach us as exceptions.
void quiet_library_logs(int least_level) {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = least_level;
}

}  // namespace

void let_the_cause_be_found_first() { std::this_thread::sleep_for(std::chrono::milliseconds(750)); }

namespace {

struct GlooParams {
  int rank = 0, size = 1, threads = 1;
  std::string address;                   // of this rank, towards the others
  std::chrono::milliseconds deadline{};  // for connecting; each collective has its own
};

c10::intrusive_ptr<c10d::Backend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store, const GlooParams& params) {
  auto options = c10d::ProcessGroupGloo::Options::create(params.deadline);
  options->threads = params.threads;
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(params.address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, params.rank, params.size, options);
}

c10::intrusive_ptr<c10d::Store> part_of(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name) {
  return c10::make_intrusive<c10d::PrefixStore>(name, store);
}

/// Returns 64 random bits that the ranks share.
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

/// Returns the error that ends the process if it has to be ended by force.
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
  at::Device device = at::kCPU;            // of groups for tensors
  std::chrono::milliseconds deadline{};    // of a collective
  std::chrono::milliseconds to_connect{};  // a group
  std::string address, interface;          // of this rank, towards the others
  std::shared_ptr<FailureDetector> detector;

  Connection properties(const std::string& name, at::Device on) const {
    return {.device = on, .deadline = deadline, .detector = detector, .name = name};
  }
  /// Connects a group for tensors.
  Group connect(const MeshGroup& part) const {
    Connection connection = properties(part.name, device);
    connection.among = part.among;
    const auto here = part_of(store, part.name);
    if (!device.is_cpu()) {
      return Group(connected(std::move(connection), [&] {
        return connect_nccl(here, {part.name, part.rank, part.size, device, interface, deadline});
      }));
    }
    constexpr int kThreads = 2;  // two buckets at a time
    return Group(connected(std::move(connection), [&] {
      return connect_gloo(here, {part.rank, part.size, kThreads, address, to_connect});
    }));
  }
};

ProcessGroups::ProcessGroups() : hosts_{host_name()}, description_("alone") {}
ProcessGroups::~ProcessGroups() = default;
ProcessGroups::ProcessGroups(ProcessGroups&&) noexcept = default;
ProcessGroups& ProcessGroups::operator=(ProcessGroups&&) noexcept = default;

ProcessGroups::ProcessGroups(const Rendezvous& at, const GroupOptions& options) : ProcessGroups() {
  if (at.world_size == 1) return;
  constexpr int kErrors = 2;
  quiet_library_logs(kErrors);
  std::signal(SIGPIPE, SIG_IGN);  // Gloo may write to a dead rank: report that as an error, do not die of it
  const std::string master = await_address(at, options);
  session_ = std::make_unique<Session>(Session{.store = open_store(at, master, options),
                                               .device = options.device,
                                               .deadline = options.deadline,
                                               .to_connect = options.start_deadline,
                                               .address = source_address_towards(master)});
  Session& session = *session_;
  session.interface = interface_of(session.address);
  hosts_ = store_rendezvous(*session.store, at, options);
  session.detector = start_failure_detector(*session.store, at, options, hosts_, session.address);
  survive_gloo_failures(session.detector);
  control_ = Group(connected(session.properties(kControl, at::kCPU), [&] {
    return connect_gloo(part_of(session.store, kControl),
                        {at.rank, at.world_size, 1, session.address, session.to_connect});
  }));
  tensors_ = session.connect({.name = kTensors, .rank = at.rank, .size = at.world_size});
  mesh_ = {.ranks = at.world_size};
  description_ = (options.device.is_cpu() ? std::string("gloo") : nccl_name() + ", control") + " over " +
                 session.interface + " (" + session.address + ")";
}

void ProcessGroups::arrange(const Mesh& mesh) {
  GPUTRAIN_ASSERT(mesh.ranks == world_size(), "a mesh of all ranks");
  mesh_ = mesh;
  if (session_) {
    std::vector<PeerPlace> places;
    for (int one = 0; one < mesh.ranks; ++one) {
      places.push_back({.text = mesh.place_text(one)});
      for (MeshGroup& group : groups_of(mesh, one)) places.back().groups.insert(std::move(group.name));
    }
    session_->detector->set_places(std::move(places));
  }
  // In the order of MeshGroup::Use.
  Group* const uses[] = {&shards_,
                         &replicas_,
                         &context_,
                         &layers_,
                         &stages_,
                         &ends_,
                         &to_next_.activations,
                         &to_previous_.activations,
                         &to_next_.gradients,
                         &to_previous_.gradients};
  for (const MeshGroup& group : groups_of(mesh, rank())) {
    *uses[static_cast<size_t>(group.use)] =
        is_simulated() ? simulated_part(group.rank, group.size) : session_->connect(group);
  }
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

std::vector<std::string> ProcessGroups::from_each_rank(const std::string& bytes, const std::string& name) {
  const at::Tensor sizes = control_.all_gather(at::full({1}, std::ssize(bytes), at::kLong), name);
  const auto longest = sizes.max().item<int64_t>();
  std::string padded = bytes;
  padded.resize(static_cast<size_t>(longest));
  const at::Tensor all =
      longest == 0 ? at::empty({world_size(), 0}, at::kByte)
                   : control_.all_gather(at::from_blob(padded.data(), {longest}, at::kByte), name).contiguous();
  std::vector<std::string> told;
  for (int64_t rank = 0; rank < world_size(); ++rank) {
    const auto size = static_cast<size_t>(sizes.reshape({-1})[rank].item<int64_t>());
    told.emplace_back(reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>()) + rank * longest, size);
  }
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
  if (session_ && session_->detector) session_->detector->leave(departure_of(as_error(failure)));
}

void ProcessGroups::leave() {
  if (session_ && session_->detector) session_->detector->leave({});
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

#include "gputrain/comm/process_groups.hpp"

#include <csignal>
#include <cstdlib>
#include <utility>

#include <c10/util/Flags.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "connection.hpp"
#include "gputrain/core/error.hpp"
#include "meeting.hpp"
#include "nccl.hpp"
#include "sockets.hpp"

C10_DECLARE_int(caffe2_log_level);

namespace gputrain::comm {
namespace {

// c10d narrates every retry of a connection on stderr, as warnings; what matters of it reaches us as exceptions.
void quiet_library_logs() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) return;
  constexpr int kErrorsOnly = 2;
  FLAGS_caffe2_log_level = kErrorsOnly;
}

struct GlooPlace {
  int rank = 0, world_size = 1, threads = 1;
  std::string address;                   // of ours, towards the others
  std::chrono::milliseconds deadline{};  // until all are connected; each collective brings its own
};

c10::intrusive_ptr<c10d::Backend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store, const GlooPlace& place) {
  auto options = c10d::ProcessGroupGloo::Options::create(place.deadline);
  options->threads = place.threads;
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(place.address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, place.rank, place.world_size, options);
}

c10::intrusive_ptr<c10d::Store> part_of(const c10::intrusive_ptr<c10d::Store>& store, const char* name) {
  return c10::make_intrusive<c10d::PrefixStore>(name, store);
}

// Connecting reads what the others wrote into the store: it fails when one of them ends meanwhile.
template <class Connect>
std::shared_ptr<Connection> connected(at::Device device, const GroupOptions& options, int rank, Connect connect) {
  auto connection = std::make_shared<Connection>();
  connection->device = device;
  connection->deadline = options.deadline;
  try {
    connection->backend = connect();
  } catch (const std::exception& error) {
    throw Error(ExitCode::restart,
                {.what = "rank " + std::to_string(rank) + " cannot connect to the others: " + plain_message(error),
                 .hint = "a rank ended while they met, or a firewall lies between the hosts"});
  }
  return connection;
}

}  // namespace

struct ProcessGroups::Meeting {
  c10::intrusive_ptr<c10d::Store> store;
};

ProcessGroups::ProcessGroups() : hosts_{"localhost"}, description_("alone") {}
ProcessGroups::~ProcessGroups() = default;
ProcessGroups::ProcessGroups(ProcessGroups&&) noexcept = default;
ProcessGroups& ProcessGroups::operator=(ProcessGroups&&) noexcept = default;

ProcessGroups::ProcessGroups(const Rendezvous& at, const GroupOptions& options) : ProcessGroups() {
  if (at.world_size == 1) return;
  quiet_library_logs();
  std::signal(SIGPIPE, SIG_IGN);  // Gloo writes to ranks that may have died: an error to report, not a death of our own
  const std::string master = meeting_address(at);
  meeting_ = std::make_unique<Meeting>(Meeting{open_store(at, master, options.start_deadline)});
  const bool on_gpu = !options.device.is_cpu();
  hosts_ = meet(*meeting_->store, at, options);

  const std::string address = source_address_towards(master), interface = interface_of(address);
  GlooPlace place{at.rank, at.world_size, 1, address, options.start_deadline};
  control_ = Group(
      connected(at::kCPU, options, at.rank, [&] { return connect_gloo(part_of(meeting_->store, "control"), place); }));
  if (on_gpu) {
    const NcclPlace nccl{at.rank, at.world_size, options.device, interface, options.deadline};
    tensors_ = Group(connected(options.device, options, at.rank,
                               [&] { return connect_nccl(part_of(meeting_->store, "tensors"), nccl); }));
  } else {
    place.threads = 2;  // two buckets under way at a time
    tensors_ = Group(connected(at::kCPU, options, at.rank,
                               [&] { return connect_gloo(part_of(meeting_->store, "tensors"), place); }));
  }
  description_ =
      (on_gpu ? nccl_name() + ", control" : std::string("gloo")) + " over " + interface + " (" + address + ")";
}

}  // namespace gputrain::comm

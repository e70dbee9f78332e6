#include "gputrain/comm/simulated_ranks.hpp"

#include <memory>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "connection.hpp"
#include "gputrain/comm/process_groups.hpp"

namespace gputrain::comm {
namespace {

class DoneWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

/// The backend of one rank whose peers do not exist.
class SimulatedBackend final : public c10d::Backend {
 public:
  SimulatedBackend(int rank, int size, std::shared_ptr<CollectiveTraffic> traffic)
      : Backend(rank, size), traffic_(std::move(traffic)) {}

  const std::string getBackendName() const override { return "imagined"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions&) override {
    return count(traffic_->all_reduce, tensors.front());
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions&) override {
    return count(traffic_->reduce, tensors.front());
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions&) override {
    return count(traffic_->broadcast, tensors.front());
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& all, at::Tensor& own,
                                                 const c10d::AllgatherOptions&) override {
    if (!own.is_alias_of(all)) all.view({getSize(), -1}).copy_(own.view({1, -1}).expand({getSize(), -1}));
    return count(traffic_->all_gather, own);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& own, at::Tensor& all,
                                                      const c10d::ReduceScatterOptions&) override {
    if (!own.is_alias_of(all)) own.copy_(all.view({getSize(), -1})[getRank()]);
    return count(traffic_->reduce_scatter, all);
  }
  /// Stands for a reduce-scatter on CPUs: the others send zeros. Two ranks exchange only the other's half.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& received, at::Tensor& sent, std::vector<int64_t>&,
                                               std::vector<int64_t>&, const c10d::AllToAllOptions&) override {
    received.zero_();
    const bool is_half = getSize() == 2;
    const auto own = static_cast<size_t>(getRank());
    if (!is_half) received.chunk(getSize())[own].copy_(sent.chunk(getSize())[own]);
    auto done = count(traffic_->reduce_scatter, sent);
    if (is_half) traffic_->reduce_scatter.bytes += static_cast<int64_t>(sent.nbytes());
    return done;
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    return c10::make_intrusive<DoneWork>();
  }

 private:
  static c10::intrusive_ptr<c10d::Work> count(CollectiveTraffic::Kind& kind, const at::Tensor& tensor) {
    ++kind.calls;
    kind.bytes += static_cast<int64_t>(tensor.nbytes());
    return c10::make_intrusive<DoneWork>();
  }

  std::shared_ptr<CollectiveTraffic> traffic_;
};

Group simulated_group(int rank, int size, std::shared_ptr<CollectiveTraffic> traffic, at::Device device) {
  auto connection = std::make_shared<Connection>();
  connection->device = device;
  connection->backend = c10::make_intrusive<SimulatedBackend>(rank, size, std::move(traffic));
  return Group(std::move(connection));
}

}  // namespace

CollectiveTraffic CollectiveTraffic::plus(int64_t times, const CollectiveTraffic& more) const noexcept {
  const auto sum = [times](const Kind& kind, const Kind& added) {
    return Kind{kind.calls + times * added.calls, kind.bytes + times * added.bytes};
  };
  return {sum(all_reduce, more.all_reduce), sum(reduce, more.reduce), sum(broadcast, more.broadcast),
          sum(all_gather, more.all_gather), sum(reduce_scatter, more.reduce_scatter)};
}

CollectiveTraffic CollectiveTraffic::operator-(const CollectiveTraffic& earlier) const noexcept {
  return plus(-1, earlier);
}

ProcessGroups ProcessGroups::simulated(const Rendezvous& at, std::shared_ptr<CollectiveTraffic> traffic,
                                       at::Device device) {
  ProcessGroups groups;
  if (at.world_size == 1) return groups;
  groups.control_ = simulated_group(at.rank, at.world_size, std::make_shared<CollectiveTraffic>(), at::kCPU);
  groups.tensors_ = simulated_group(at.rank, at.world_size, traffic, device);
  groups.simulated_traffic_ = std::move(traffic);
  groups.simulated_device_ = device;
  groups.mesh_ = {.ranks = at.world_size};
  groups.hosts_.assign(static_cast<size_t>(at.world_size), "imagined");
  groups.description_ = "imagined";
  return groups;
}

Group ProcessGroups::simulated_part(int rank, int size) const {
  return simulated_group(rank, size, simulated_traffic_, simulated_device_);
}

}  // namespace gputrain::comm

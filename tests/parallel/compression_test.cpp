// Compressed gradients: what arrives, and how many bytes were really sent.
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <memory>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "parallel/small_model.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::distance;
using gputrain::testing::expect_success;
using gputrain::testing::fail;
using gputrain::testing::given;
using gputrain::testing::join;
using gputrain::testing::RankBody;

/// A weight of a million numbers with given gradients, and a bias that forms a second bucket.
struct WideModel {
  static constexpr int64_t kRows = 1000, kColumns = 1000;
  at::Tensor weight = at::empty({kRows, kColumns}).requires_grad_(true),
             bias = at::empty({kColumns}).requires_grad_(true);
  device::Arena arena;

  explicit WideModel(device::Kept kept = device::Kept::whole, int64_t shards = 1)
      : arena({{"weight", weight, 0, true}, {"bias", bias, 1, false}}, {.gradients = kept, .shards = shards}) {
    at::Tensor(arena.values()).fill_(0);
  }
  std::vector<at::Tensor> parameters() const { return {weight, bias}; }
  void backward(const at::Tensor& weight_gradient, const at::Tensor& bias_gradient) const {
    ((weight * weight_gradient).sum() + (bias * bias_gradient).sum()).backward();
  }
};

/// Bytes this process has sent on all its TCP connections, as the kernel counts them.
int64_t bytes_on_the_wire() {
  int64_t sum = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  while (const dirent* entry = ::readdir(folder.get())) {
    tcp_info info{};
    socklen_t size = sizeof info;
    const int descriptor = std::atoi(entry->d_name);
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
      sum += static_cast<int64_t>(info.tcpi_bytes_sent - info.tcpi_bytes_retrans);
  }
  return sum;
}

at::Tensor exact_sum(comm::ProcessGroups& groups, const at::Tensor& tensor) {
  const at::Tensor sum = tensor.to(at::kDouble);
  groups.tensors().all_reduce_sum(sum, "in double").wait();
  return sum;
}

/// Each rank rounds once when it sends and once per addition: u (|sum| + world sum |x|) is a generous bound.
bool is_rounded_sum(comm::ProcessGroups& groups, const at::Tensor& actual, const at::Tensor& own, double unit,
                    double smallest) {
  const at::Tensor expected = exact_sum(groups, own);
  const at::Tensor sizes = exact_sum(groups, own.abs());
  const at::Tensor bound = sizes * (unit * (groups.world_size() + 1)) + smallest * groups.world_size();
  return (actual.to(at::kDouble) - expected).abs().le(bound).all().item<bool>();
}

const RankBody sends_half("sends_half", [] {
  comm::ProcessGroups groups = join();
  const bool is_fp16 = given("FP16") == 1;
  const int64_t stage = given("STAGE"), world = groups.world_size(), replicas = given("REPLICAS");
  groups.arrange({.ranks = groups.world_size(), .replicas = static_cast<int>(replicas)});
  const int shards = groups.mesh().shards(), shard = groups.mesh().shard_of(groups.rank());
  WideModel model(stage == 2 ? device::Kept::owned : device::Kept::whole, stage == 0 ? 1 : shards);
  ReducerOptions options{.wire_type = is_fp16 ? at::kHalf : at::kBFloat16};
  if (stage > 0) options.owners = equal_shards(model.arena, shards);
  if (stage > 0) model.arena.own(options.owners[static_cast<size_t>(shard)]);
  DataParallel parallel(groups, model.arena, model.parameters(), options);
  const at::Tensor weight = at::randn({WideModel::kRows, WideModel::kColumns}) * (1 + groups.rank());
  const at::Tensor bias = at::empty({WideModel::kColumns}).fill_(50'000);  // the sum overflows fp16
  model.arena.clear_gradients();
  parallel.prepare(true);
  model.backward(weight, bias);
  parallel.finish();
  at::Tensor own = at::empty({model.arena.values().numel()}).fill_(0);
  own.narrow(0, 0, weight.numel()).copy_(weight.view(-1));
  own.narrow(0, model.arena.segments()[1].offset, bias.numel()).copy_(bias);
  const double unit = is_fp16 ? 0x1p-11 : 0x1p-8, smallest = is_fp16 ? 0x1p-24 * static_cast<double>(world) : 0;
  at::Tensor sum = at::empty_like(own);
  for (const auto& [range, at] : model.arena.owned()) {
    const int64_t place = stage == 2 ? at : range.begin;
    sum.narrow(0, range.begin, range.size()).copy_(model.arena.kept_gradients().narrow(0, place, range.size()));
  }
  for (int rank = 0; rank < shards && stage > 0; ++rank) {  // the first replica's
    for (const device::Range& part : options.owners[static_cast<size_t>(rank)])
      groups.tensors().broadcast(sum.narrow(0, part.begin, part.size()), rank, "part");
  }
  if (!is_rounded_sum(groups, sum, own, unit, smallest)) return fail("rounded too far", 0);
  if (distance(sum, exact_sum(groups, own)) == 0) return fail("was not rounded", 0);
  if (stage > 0) return 0;  // values come back in full
  const GradientTraffic traffic = traffic_of_step(model.arena, options, groups.mesh(), 1);
  const int64_t off = traffic.full_bytes - 2 * traffic.bytes;  // 1 with three ranks, by rounding
  return off == 0 || off == 1 ? 0 : fail("bytes", static_cast<double>(traffic.bytes));
});

TEST(Compression, MatchesSumWithin16BitRounding) {
  for (const char* fp16 : {"0", "1"}) {
    int world = *fp16 == '0' ? 2 : 3;
    for (const char* stage : {"0", "1", "2"}) {
      expect_success("sends_half", world, {{"FP16", fp16}, {"STAGE", stage}, {"REPLICAS", "1"}});
      world = 5 - world;
    }
    for (const char* stage : {"1", "2"})
      expect_success("sends_half", 4, {{"FP16", fp16}, {"STAGE", stage}, {"REPLICAS", "2"}});
  }
}

const RankBody overflows("overflows", [] {
  comm::ProcessGroups groups = join();
  WideModel model;
  DataParallel parallel(groups, model.arena, model.parameters(), {.wire_type = at::kHalf});
  const bool is_bad = groups.rank() == 1;
  const at::Tensor weight = at::empty({WideModel::kRows, WideModel::kColumns}).fill_(1);
  const at::Tensor bias = at::empty({WideModel::kColumns}).fill_(is_bad ? 1e6 : 1);  // overflows fp16
  parallel.prepare(true);
  model.backward(weight, bias);
  parallel.finish();
  const bool shows = model.bias.grad().isinf().all().item<bool>() && model.weight.grad().eq(2).all().item<bool>();
  return shows ? 0 : fail("does not show", 0);
});

TEST(Compression, SpreadsFp16OverflowToAllRanks) { expect_success("overflows", 2); }

/// Bytes on the wire in one step of the wide model, and the bytes that were predicted.
std::pair<int64_t, int64_t> sent_by_one_step(comm::ProcessGroups& groups, WideModel& model,
                                             const ReducerOptions& options) {
  DataParallel parallel(groups, model.arena, model.parameters(), options);
  const at::Tensor weight = at::randn({WideModel::kRows, WideModel::kColumns}), bias = at::randn({WideModel::kColumns});
  groups.control().barrier("before");
  const int64_t before = bytes_on_the_wire();
  for (int step = 0; step < 4; ++step) {
    parallel.prepare(true);
    model.backward(weight, bias);
    parallel.finish();
  }
  groups.control().barrier("after");
  const int64_t sent = bytes_on_the_wire() - before;
  groups.control().barrier("counted");  // a rank that leaves earlier closes its connections
  return {sent / 4, traffic_of_step(model.arena, options, groups.mesh(), 1).bytes};
}

const RankBody counts_bytes("counts_bytes", [] {
  comm::ProcessGroups groups = join();
  WideModel model;
  const ReducerOptions ways[] = {{}, {.wire_type = at::kBFloat16}};
  const int64_t sizes[] = {4'004'096, 2'002'048}, world = groups.world_size();
  for (size_t i = 0; i < 2; ++i) {
    const auto [wire, counted] = sent_by_one_step(groups, model, ways[i]);
    if (counted != 2 * sizes[i] * (world - 1) / world) return fail("counted", static_cast<double>(counted));
    const double share = static_cast<double>(wire) / static_cast<double>(counted);
    if (!(share > 0.99 && share < 1.01 + 4000.0 / static_cast<double>(counted)))
      return fail("share on the wire", share);
  }
  return 0;
});

TEST(Compression, CountsBytesTheKernelSends) {
  for (const int world : {2, 3}) expect_success("counts_bytes", world);
}

}  // namespace
}  // namespace gputrain::parallel

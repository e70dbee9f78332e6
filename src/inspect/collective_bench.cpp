#include "gputrain/inspect/collective_bench.hpp"

#include <algorithm>
#include <chrono>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/stack.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::app {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Returns a small whole number: fp32 sums them over any number of ranks without rounding.
int64_t factor_of_rank(int64_t rank) { return rank % 8 + 1; }

at::Tensor pattern(int64_t elements, at::Device device) {
  return at::arange(elements, at::TensorOptions().dtype(at::kLong).device(device)).remainder(7).add(1).to(at::kFloat);
}

/// Collective on one tensor.
class CollectiveUnderTest {
 public:
  CollectiveUnderTest(std::string name, int64_t elements, comm::ProcessGroups& groups, at::Device device)
      : name_(std::move(name)), group_(groups.tensors()), pattern_(pattern(elements, device)) {
    restore();
  }

  /// Returns when the result can be used, see comm::Pending.
  void call() {
    if (name_ == "all_reduce") return group_.all_reduce_sum(tensor_, "benchmark").wait();
    if (name_ == "reduce") return group_.reduce_sum(tensor_, 0, "benchmark").wait();
    if (name_ == "broadcast") return group_.broadcast(tensor_, 0, "benchmark");
    gathered_ = group_.all_gather(tensor_, "benchmark");
  }

  /// Counts the elements of this rank's result that are wrong after the first call.
  int64_t wrong() const {
    if (name_ == "reduce" && group_.rank() != 0) return 0;
    const at::Tensor& result = name_ == "all_gather" ? gathered_ : tensor_;
    return at::ne(result, expected()).sum().item<int64_t>();
  }

  /// Sets zeros, which stay zeros however often they are summed.
  void clear() { tensor_.zero_(); }

 private:
  void restore() { tensor_ = pattern_.mul(factor_of_rank(group_.rank())); }

  at::Tensor expected() const {
    if (name_ == "broadcast") return pattern_.mul(factor_of_rank(0));
    if (name_ == "all_gather") {
      std::vector<at::Tensor> parts;
      for (int rank = 0; rank < group_.size(); ++rank) parts.push_back(pattern_.mul(factor_of_rank(rank)));
      return at::stack(parts);
    }
    int64_t sum = 0;
    for (int rank = 0; rank < group_.size(); ++rank) sum += factor_of_rank(rank);
    return pattern_.mul(sum);
  }

  std::string name_;
  comm::Group& group_;
  at::Tensor pattern_, tensor_, gathered_;
};

double seconds_per_call(CollectiveUnderTest& collective, const CollectiveCounts& counts, comm::ProcessGroups& groups,
                        at::Device device) {
  for (int64_t i = 0; i < counts.warmup; ++i) collective.call();
  device::synchronize(device);
  groups.control().barrier("before a measurement");
  const auto begin = SteadyClock::now();
  for (int64_t i = 0; i < counts.iterations; ++i) collective.call();
  device::synchronize(device);
  const double seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
  return seconds / static_cast<double>(counts.iterations);
}

}  // namespace

const std::vector<std::string>& collective_names() {
  static const std::vector<std::string> names{"all_reduce", "reduce", "broadcast", "all_gather"};
  return names;
}

double bus_factor(std::string_view collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (collective == "all_reduce") return 2 * others;
  return collective == "all_gather" ? others : 1;
}

CollectiveRow time_collective(const std::string& collective, int64_t bytes, const CollectiveCounts& counts,
                              comm::ProcessGroups& groups, at::Device device) {
  const int ranks = groups.world_size();
  const int64_t parts = collective == "all_gather" ? ranks : 1;
  const int64_t elements = std::max<int64_t>(1, ceil_divide(ceil_divide(bytes, 4), parts));
  CollectiveUnderTest tested(collective, elements, groups, device);
  tested.call();
  const at::Tensor wrong = at::full({1}, tested.wrong(), at::kLong);
  tested.clear();
  const double seconds = seconds_per_call(tested, counts, groups, device);
  groups.control().all_reduce_sum(wrong, "wrong results").wait();
  const at::Tensor all_seconds = groups.control().all_gather(at::full({1}, seconds, at::kDouble), "seconds");
  return {.collective = collective,
          .ranks = ranks,
          .bytes = elements * parts * 4,
          .wrong = wrong.item<int64_t>(),
          .seconds = all_seconds.max().item<double>()};
}

std::vector<int64_t> sizes_between(int64_t first, int64_t last, int64_t factor) {
  GPUTRAIN_ASSERT(first > 0 && factor > 1, "sizes that never reach the last");
  std::vector<int64_t> sizes;
  for (int64_t size = first; size <= last; size *= factor) {
    sizes.push_back(size);
    if (size > last / factor) break;
  }
  return sizes;
}

}  // namespace gputrain::app

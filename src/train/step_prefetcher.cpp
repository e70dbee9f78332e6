#include "gputrain/train/step_prefetcher.hpp"

#include <ATen/ops/tensor.h>

#include <chrono>
#include <numeric>
#include <span>
#include <utility>

#include "gputrain/core/error.hpp"
#include "profile/profile_range.hpp"

namespace gputrain::train {
namespace {

// The fingerprint is sent as two halves, whose sums cannot overflow.
constexpr size_t kWeight = 0, kSamples = 1, kUsageLow = 2, kUsageHigh = 3, kUnreadable = 4, kAnew = 5, kRecord = 6,
                 kLossWeight = 7, kVotes = 8, kRequests = kVotes + kStopVotes;

int64_t low_half(uint64_t value) { return static_cast<int64_t>(value & 0xFFFFFFFF); }
int64_t high_half(uint64_t value) { return static_cast<int64_t>(value >> 32); }

StepConsensus read_sums(std::span<const double> found) {
  const std::vector<int64_t> all(found.begin(), found.end());
  const std::span<const int64_t> sums(all);
  StepConsensus agreed{
      .weight = sums[kWeight], .usage = {}, .stop = agreed_stop(sums.subspan(kVotes)), .hook_requests = {}};
  agreed.loss_weight = found[kLossWeight];
  agreed.replays = sums[kAnew] == 0;
  agreed.records = sums[kRecord] > 0;
  agreed.usage.samples = sums[kSamples];
  agreed.usage.fingerprint = static_cast<uint64_t>(sums[kUsageLow]) + (static_cast<uint64_t>(sums[kUsageHigh]) << 32);
  agreed.usage.unreadable = sums[kUnreadable];
  for (const int64_t request : sums.subspan(kRequests)) agreed.hook_requests.push_back(request > 0);
  return agreed;
}

}  // namespace

void StepPrefetcher::prefetch(const std::vector<bool>& hook_requests) {
  const auto begin = std::chrono::steady_clock::now();
  Step step;
  {
    const ProfileRange range(kDataRange);
    step.data = loader_.next_step();
  }
  step.wait_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const bool tells_samples = groups_.mesh().counts_samples(groups_.rank());
  const data::SampleUsage usage = tells_samples ? step.data.usage : data::SampleUsage();
  const GraphUse use = graph_use_(step.data);
  const std::vector<int64_t> counts{tells_samples ? step.data.weight : 0,
                                    usage.samples,
                                    low_half(usage.fingerprint),
                                    high_half(usage.fingerprint),
                                    usage.unreadable,
                                    use == GraphUse::none ? 1 : 0,
                                    use == GraphUse::record ? 1 : 0};
  std::vector<double> mine(counts.begin(), counts.end());
  const std::vector<double>& weights = step.data.loss_weights;
  mine.push_back(tells_samples ? std::accumulate(weights.begin(), weights.end(), 0.0) : 0);
  sums_ = at::tensor(with_wishes(std::move(mine), hook_requests), at::kDouble);
  pending_ = groups_.control().all_reduce_sum(sums_, "agreement on the next step");
  fetched_ = std::move(step);
}

/// Adds this rank's votes for a stop and its hooks' requests.
std::vector<double> StepPrefetcher::with_wishes(std::vector<double> counts,
                                                const std::vector<bool>& hook_requests) const {
  for (const int64_t vote : stop_votes(own_stop_ ? own_stop_() : Stop::none))
    counts.push_back(static_cast<double>(vote));
  counts.insert(counts.end(), hook_requests.begin(), hook_requests.end());
  return counts;
}

StepConsensus StepPrefetcher::agree(const std::vector<bool>& hook_requests) {
  const at::Tensor sums = at::tensor(with_wishes(std::vector<double>(kVotes), hook_requests), at::kDouble);
  groups_.control().all_reduce_sum(sums, "agreement during a pause").wait();
  return read_sums({sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())});
}

StepPrefetcher::Step StepPrefetcher::next() {
  GPUTRAIN_ASSERT(fetched_.has_value(), "next() without prefetch()");
  {
    const ProfileRange range(kAgreeRange);
    pending_.wait();
  }
  Step step = std::move(*fetched_);
  fetched_.reset();
  step.agreed = read_sums({sums_.const_data_ptr<double>(), static_cast<size_t>(sums_.numel())});
  return step;
}

}  // namespace gputrain::train

#include "gputrain/train/feed.hpp"

#include <ATen/ops/tensor.h>

#include <chrono>
#include <span>
#include <utility>

#include "gputrain/core/error.hpp"

namespace gputrain::train {
namespace {

constexpr size_t kWeight = 0, kSamples = 1, kVotes = 2, kWishes = kVotes + kStopVotes;

Agreement read_sums(std::span<const int64_t> sums) {
  Agreement agreed{.weight = sums[kWeight], .samples = sums[kSamples], .stop = agreed_stop(sums.subspan(kVotes)), .wishes = {}};
  for (const int64_t wish : sums.subspan(kWishes)) agreed.wishes.push_back(wish > 0);
  return agreed;
}

}  // namespace

void Feed::prefetch(const std::vector<bool>& wishes) {
  const auto begin = std::chrono::steady_clock::now();
  Step step{.data = loader_.next_step(), .agreed = {}, .wait_seconds = 0};
  step.wait_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::vector<int64_t> mine{step.data.weight, step.data.samples};
  for (const int64_t vote : stop_votes(own_stop_ ? own_stop_() : Stop::none)) mine.push_back(vote);
  mine.insert(mine.end(), wishes.begin(), wishes.end());
  sums_ = at::tensor(mine, at::kLong);
  pending_ = groups_.control().all_reduce_sum(sums_, "agreement on the next step");
  fetched_ = std::move(step);
}

Feed::Step Feed::next() {
  GPUTRAIN_ASSERT(fetched_.has_value(), "next() without prefetch()");
  pending_.wait();
  Step step = std::move(*fetched_);
  fetched_.reset();
  step.agreed = read_sums({sums_.const_data_ptr<int64_t>(), static_cast<size_t>(sums_.numel())});
  return step;
}

}  // namespace gputrain::train

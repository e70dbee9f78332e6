#include "gputrain/data/subset.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/order.hpp"

namespace gputrain::data {

// Not the job's seed: a split must stay the same when a run is repeated with another one.
constexpr uint64_t kSplitSeed = 0x73706C6974;

Subset::Subset(std::shared_ptr<const Dataset> whole, double begin, double end) : whole_(std::move(whole)) {
  GPUTRAIN_ASSERT(begin >= 0 && begin <= end && end <= 1, "fractions in order");
  const auto place = [n = whole_->size()](double fraction) {
    return static_cast<int64_t>(std::llround(fraction * static_cast<double>(n)));
  };
  begin_ = place(begin);
  end_ = place(end);
}

void Subset::read(int64_t index, const ReadContext& context, std::byte* input, int64_t* target) const {
  whole_->read(permute(kSplitSeed, 0, whole_->size(), begin_ + index), context, input, target);
}

std::string Subset::describe() const { return grouped(size()) + " of " + whole_->describe(); }

FirstSamples::FirstSamples(std::shared_ptr<const Dataset> whole, int64_t count)
    : whole_(std::move(whole)), count_(std::min(count, whole_->size())) {}

std::string FirstSamples::describe() const {
  return (count_ < whole_->size() ? "the first " + grouped(count_) + " samples of " : "") + whole_->describe();
}

}  // namespace gputrain::data

#include "gputrain/data/subset.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/order.hpp"

namespace gputrain::data {
namespace {

// Seed of its own, not the job's: the split must not change when a run is repeated with another seed.
constexpr uint64_t kSplitSeed = 0x73706C6974;

int64_t place_of(double fraction, const Dataset& whole) {
  return std::llround(fraction * static_cast<double>(whole.size()));
}

}  // namespace

int64_t sample_of_split(int64_t place, int64_t n) noexcept { return permute(kSplitSeed, 0, n, place); }

SomeSamples::SomeSamples(std::shared_ptr<const Dataset> whole, int64_t size) : whole_(std::move(whole)), size_(size) {}

Subset::Subset(std::shared_ptr<const Dataset> whole, double begin, double end)
    : SomeSamples(whole, place_of(end, *whole) - place_of(begin, *whole)), begin_(place_of(begin, *whole)) {
  GPUTRAIN_ASSERT(begin >= 0 && begin <= end && end <= 1, "fractions in order");
}

void Subset::read(int64_t index, const ReadContext& context, const SampleRow& row) const {
  whole().read(sample(index), context, row);
}

std::string Subset::describe() const { return grouped(size()) + " of " + whole().describe(); }

FirstSamples::FirstSamples(std::shared_ptr<const Dataset> whole, int64_t count)
    : SomeSamples(whole, std::min(count, whole->size())) {}

void FirstSamples::read(int64_t index, const ReadContext& context, const SampleRow& row) const {
  whole().read(index, context, row);
}

std::string FirstSamples::describe() const {
  return (size() < whole().size() ? "the first " + counted(size(), "sample") + " of " : "") + whole().describe();
}

}  // namespace gputrain::data

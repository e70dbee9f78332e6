#include "gputrain/device/arena.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ops/as_strided.h>

#include "flat_zeros.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::device {
namespace {

constexpr int64_t kAlignmentBytes = 128;

int64_t rounded_up(int64_t value, int64_t multiple) { return ceil_divide(value, multiple) * multiple; }

/// The order in memory: by unit; within a unit, segments that decay first; otherwise as given.
std::vector<size_t> memory_order(const std::vector<Resident>& residents) {
  std::vector<size_t> order(residents.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Resident &left = residents[a], &right = residents[b];
    return std::pair(left.unit, !left.decays) < std::pair(right.unit, !right.decays);
  });
  return order;
}

void check_residents(const std::vector<Resident>& residents) {
  GPUTRAIN_ASSERT(!residents.empty(), "an arena holds at least one tensor");
  const at::Tensor& first = residents.front().value;
  int64_t unit = residents.front().unit;
  for (const Resident& resident : residents) {
    const at::Tensor& value = resident.value;
    GPUTRAIN_ASSERT(value.dtype() == first.dtype() && value.device() == first.device(),
                    "all tensors of an arena share dtype and device: " + resident.name);
    GPUTRAIN_ASSERT(value.is_leaf() && value.is_non_overlapping_and_dense(),
                    "a tensor of an arena is a dense leaf: " + resident.name);
    GPUTRAIN_ASSERT(resident.unit >= unit, "units must not decrease: " + resident.name);
    unit = resident.unit;
  }
}

Segment segment_at(int64_t offset, const Resident& resident) {
  const at::Tensor& value = resident.value;
  const auto alignment = kAlignmentBytes / static_cast<int64_t>(value.itemsize());
  return {.name = resident.name,
          .offset = offset,
          .numel = value.numel(),
          .padded = rounded_up(value.numel(), alignment),
          .sizes = value.sizes().vec(),
          .strides = value.strides().vec(),
          .unit = resident.unit,
          .decays = resident.decays};
}

/// Whether `tensor` is exactly the segment's view of `flat`.
bool lives_in(const at::Tensor& tensor, const at::Tensor& flat, const Segment& segment) {
  return tensor.defined() && tensor.is_alias_of(flat) && tensor.storage_offset() == segment.offset &&
         tensor.sizes() == at::IntArrayRef(segment.sizes) && tensor.strides() == at::IntArrayRef(segment.strides);
}

/// Merges adjacent segments with equal `key` into ranges.
template <class Key>
std::vector<Range> runs_of(const std::vector<Segment>& segments, Key key) {
  std::vector<Range> ranges;
  const Segment* previous = nullptr;
  for (const Segment& segment : segments) {
    if (previous == nullptr || key(*previous) != key(segment)) {
      ranges.push_back({.begin = segment.offset, .end = segment.offset, .decays = segment.decays});
    }
    ranges.back().end = segment.offset + segment.padded;
    previous = &segment;
  }
  return ranges;
}

}  // namespace

Arena::Arena(const std::vector<Resident>& residents, Gradients kept, std::optional<at::ScalarType> working_type)
    : kept_(kept) {
  check_residents(residents);
  int64_t numel = 0;
  for (const size_t index : memory_order(residents)) {
    segments_.push_back(segment_at(numel, residents[index]));
    residents_.push_back(residents[index].value);
    numel += segments_.back().padded;
  }
  const at::TensorOptions options = residents.front().value.options().requires_grad(false);
  values_ = flat_zeros(numel, options);
  if (kept == Gradients::whole) {
    gradients_ = flat_zeros(numel, options);
    own({.begin = 0, .end = numel});
  }
  if (working_type) working_copy_ = c10::make_intrusive<WorkingCopy>(values_, *working_type);
  for (size_t i = 0; i < segments_.size(); ++i) {
    residents_[i].set_data(view(values_, segments_[i]));
    residents_[i].mutable_grad() = gradients_.defined() ? view(gradients_, segments_[i]) : at::Tensor();
    if (working_copy_) working_copy_->add(residents_[i]);
  }
}

bool Segment::is_row_major() const noexcept {
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != stride) return false;
    stride *= sizes[i];
  }
  return true;
}

std::vector<Range> Arena::decay_ranges() const {
  return runs_of(segments_, [](const Segment& segment) { return segment.decays; });
}

std::vector<Range> Arena::unit_ranges() const {
  return runs_of(segments_, [](const Segment& segment) { return segment.unit; });
}

void Arena::own(const Range& range) {
  GPUTRAIN_ASSERT(0 <= range.begin && range.begin <= range.end && range.end <= values_.numel(),
                  "a stretch of the arena");
  owned_ = range;
  owned_gradients_ = kept_ == Gradients::whole ? gradients_.narrow(0, range.begin, range.size()) : make_state();
}

void Arena::clear_gradients() { (kept_ == Gradients::whole ? gradients_ : owned_gradients_).zero_(); }

at::Tensor Arena::make_state() const { return flat_zeros(owned_.size(), values_.options()); }

at::Tensor Arena::state_view(const at::Tensor& state, const Segment& segment) const {
  GPUTRAIN_ASSERT(owned_.begin <= segment.offset && segment.offset + segment.numel <= owned_.end, "the rank owns it");
  return at::as_strided(state, segment.sizes, segment.strides, segment.offset - owned_.begin);
}

at::Tensor Arena::view(const at::Tensor& flat, const Segment& segment) const {
  return at::as_strided(flat, segment.sizes, segment.strides, segment.offset);
}

void Arena::check_views() const {
  for (size_t i = 0; i < segments_.size(); ++i) {
    const std::string& name = segments_[i].name;
    GPUTRAIN_ASSERT(lives_in(residents_[i], values_, segments_[i]), "the value left the arena: " + name);
    const at::Tensor& gradient = residents_[i].grad();
    const bool is_ours = gradients_.defined() ? lives_in(gradient, gradients_, segments_[i]) : !gradient.defined();
    GPUTRAIN_ASSERT(is_ours, "the gradient left the arena: " + name);
  }
}

}  // namespace gputrain::device

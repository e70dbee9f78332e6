#include "gputrain/device/arena.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>

#include "flat_zeros.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::device {
namespace {

constexpr int64_t kAlignmentBytes = 128;

int64_t rounded_up(int64_t value, int64_t multiple) { return ceil_divide(value, multiple) * multiple; }

/// Returns the order in memory of the trainable ones: by unit; within a unit, segments that decay first, then by
/// settings; otherwise as given. `by_reading`: first those that are read in the working type.
std::vector<size_t> memory_order(const std::vector<ArenaTensor>& arena_tensors, bool by_reading) {
  std::vector<size_t> order(arena_tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t index) { return !arena_tensors[index].trainable; });
  const auto key = [&](size_t index) {
    const ArenaTensor& one = arena_tensors[index];
    return std::tuple(one.unit, by_reading && one.read_in_master, !one.decays, one.settings.lr_factor,
                      one.settings.weight_decay);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

const at::Tensor& first_trained(const std::vector<ArenaTensor>& arena_tensors) {
  return std::ranges::find(arena_tensors, true, &ArenaTensor::trainable)->value;
}

void check_arena_tensors(const std::vector<ArenaTensor>& arena_tensors) {
  GPUTRAIN_ASSERT(std::ranges::any_of(arena_tensors, &ArenaTensor::trainable), "an arena holds at least one tensor");
  const at::Tensor& first = first_trained(arena_tensors);
  int64_t unit = arena_tensors.front().unit;
  for (const ArenaTensor& arena_tensor : arena_tensors) {
    const at::Tensor& value = arena_tensor.value;
    GPUTRAIN_ASSERT(value.device() == first.device() && (!arena_tensor.trainable || value.dtype() == first.dtype()),
                    "all tensors of an arena share a device, and trained ones the dtype: " + arena_tensor.name);
    GPUTRAIN_ASSERT(value.is_leaf() && value.is_non_overlapping_and_dense(),
                    "a tensor of an arena is a dense leaf: " + arena_tensor.name);
    GPUTRAIN_ASSERT(arena_tensor.unit >= unit, "units must not decrease: " + arena_tensor.name);
    GPUTRAIN_ASSERT(arena_tensor.trainable || !value.requires_grad(),
                    "a frozen tensor has no gradient: " + arena_tensor.name);
    unit = arena_tensor.unit;
  }
}

/// Returns the size with padding, so that the next tensor is aligned, also when it is split among `shards` ranks.
int64_t padded_size(int64_t numel, at::ScalarType type, int64_t shards = 1) {
  return rounded_up(numel, shards * kAlignmentBytes / static_cast<int64_t>(at::elementSize(type)));
}

at::ScalarType frozen_type_of(const ArenaTensor& one) { return one.frozen_type.value_or(one.value.scalar_type()); }

Segment segment_at(int64_t offset, const ArenaTensor& arena_tensor, at::ScalarType type) {
  const at::Tensor& value = arena_tensor.value;
  return {.name = arena_tensor.name,
          .offset = offset,
          .numel = value.numel(),
          .padded = padded_size(value.numel(), type),
          .sizes = value.sizes().vec(),
          .strides = value.strides().vec(),
          .unit = arena_tensor.unit,
          .decays = arena_tensor.decays,
          .role = arena_tensor.role,
          .settings = arena_tensor.settings,
          .split = arena_tensor.split};
}

/// Returns one range per unit, in order. `is_cut(i)`: also between segments i - 1 and i of a unit.
std::vector<Range> ranges_of_units(
    const std::vector<Segment>& segments, const std::function<bool(size_t)>& is_cut = [](size_t) { return false; }) {
  std::vector<Range> ranges;
  const Segment* previous = nullptr;
  for (const Segment& segment : segments) {
    const auto index = static_cast<size_t>(&segment - segments.data());
    if (previous == nullptr || previous->unit != segment.unit || is_cut(index))
      ranges.push_back({.begin = segment.offset, .end = segment.offset});
    ranges.back().end = segment.offset + segment.padded;
    previous = &segment;
  }
  return ranges;
}

/// Pads the last segment of each of `parts`, so that these can be split among `shards` ranks at multiples of 128 bytes.
/// Returns the parts with their padding.
std::vector<Range> pad_parts(std::vector<Segment>& segments, std::vector<Range> parts, int64_t shards,
                             int64_t element_bytes) {
  std::ranges::reverse(parts);  // now ascending
  int64_t added = 0;
  auto segment = segments.begin();
  for (Range& part : parts) {
    const int64_t end = part.end;
    part.begin += added;
    for (; segment != segments.end() && segment->offset < end; ++segment) segment->offset += added;
    const int64_t padded = rounded_up(end + added - part.begin, shards * kAlignmentBytes / element_bytes);
    const int64_t more = part.begin + padded - (end + added);
    std::prev(segment)->padded += more;
    added += more;
    part.end = end + added;
  }
  std::ranges::reverse(parts);
  return parts;
}

/// Returns whether `tensor` is exactly the segment's view of `flat`.
bool lives_in(const at::Tensor& tensor, const at::Tensor& flat, const Segment& segment) {
  return tensor.defined() && tensor.is_alias_of(flat) && tensor.storage_offset() == segment.offset &&
         tensor.sizes() == at::IntArrayRef(segment.sizes) && tensor.strides() == at::IntArrayRef(segment.strides);
}

}  // namespace

std::vector<Range> join(std::vector<Range> ranges, int64_t element_bytes, const JoinLimits& limits) {
  std::ranges::reverse(ranges);
  std::vector<Range> joined;
  for (const Range& range : ranges) {
    const int64_t limit = joined.size() <= 1 ? limits.first_bytes : limits.bytes;
    if (!joined.empty() && (joined.back().end - range.begin) * element_bytes <= limit) {
      joined.back().begin = range.begin;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

void give_memory(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  GPUTRAIN_ASSERT(storage.nbytes() == 0, "it has none");
  const size_t bytes = tensor.nbytes();
  storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
  storage.set_nbytes(bytes);
}

bool has_memory(const at::Tensor& tensor) { return tensor.numel() == 0 || tensor.storage().nbytes() > 0; }

void take_memory(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, storage.device()));
  storage.set_nbytes(0);
}

Arena::Arena(const std::vector<ArenaTensor>& arena_tensors, const ArenaOptions& options)
    : kept_(options.gradients),
      kept_values_(options.values),
      state_on_host_(options.state_on_host),
      shards_(options.shards),
      rounding_seed_(options.rounding_seed) {
  check_arena_tensors(arena_tensors);
  at::TensorOptions of_values = first_trained(arena_tensors).options().requires_grad(false);
  if (options.values_type) of_values = of_values.dtype(*options.values_type);
  const auto type = at::typeMetaToScalarType(of_values.dtype());
  const bool has_copies = keeps_owned_values_only() && options.working_type;
  const std::vector<size_t> order = memory_order(arena_tensors, has_copies);
  for (const size_t index : order) {
    segments_.push_back(segment_at(numel_, arena_tensors[index], type));
    arena_tensors_.push_back(arena_tensors[index].value);
    numel_ += segments_.back().padded;
  }
  const auto read_in_master = [&](size_t i) { return !has_copies || arena_tensors[order[i]].read_in_master; };
  if (shards_ > 1) {
    const auto bytes = static_cast<int64_t>(of_values.dtype().itemsize());
    auto ranges = ranges_of_units(segments_, [&](size_t i) { return read_in_master(i) != read_in_master(i - 1); });
    ranges = join(std::move(ranges), bytes, keeps_owned_values_only() ? JoinLimits{0, 0} : options.parts);
    parts_ = pad_parts(segments_, std::move(ranges), shards_, bytes);
    numel_ = parts_.front().end;
  }
  values_ = keeps_owned_values_only() ? at::empty({0}, of_values) : flat_zeros(numel_, of_values);
  if (kept_ == Kept::whole) gradients_ = flat_zeros(numel_, of_values);
  if (options.working_type) working_copy_ = c10::make_intrusive<WorkingCopy>(values_, *options.working_type);
  if (keeps_owned_values_only()) {
    GPUTRAIN_ASSERT(shards_ > 1 && kept_ == Kept::owned, "ranks that share out values share out gradients");
    for (const Range& part : parts_) {
      const auto first = std::ranges::find(segments_, part.begin, &Segment::offset);
      gathered_.push_back({.range = part, .unit = first->unit, .values = at::empty({part.size()}, of_values)});
      if (!read_in_master(static_cast<size_t>(first - segments_.begin())))
        gathered_.back().copy = at::empty({part.size()}, of_values.dtype(*options.working_type));
      for (auto segment = first; segment != segments_.end() && segment->offset < part.end; ++segment)
        place(static_cast<size_t>(segment - segments_.begin()));
      take_memory(gathered_.back().values);
      if (gathered_.back().copy.defined()) take_memory(gathered_.back().copy);
    }
  } else if (kept_ == Kept::whole) {
    own({{.begin = 0, .end = numel_}});
  }
  for (size_t i = 0; i < segments_.size() && gathered_.empty(); ++i) place(i);
  keeps_owned_values_only() ? share_out_frozen(arena_tensors) : place_frozen(arena_tensors);
}

/// Makes a parameter a view of its place, in the last of the gathered parts if there are any.
void Arena::place(size_t index) {
  const Segment& segment = segments_[index];
  const at::Tensor& parameter = arena_tensors_[index];
  if (keeps_owned_values_only()) {
    const GatheredPart& part = gathered_.back();
    const auto view_in = [&](const at::Tensor& flat) {
      return at::as_strided(flat, segment.sizes, segment.strides, segment.offset - part.range.begin);
    };
    parameter.set_data(view_in(part.values));
    parameter.mutable_grad() = at::Tensor();
    if (part.copy.defined()) working_copy_->add(parameter, view_in(part.copy));
    return;
  }
  parameter.set_data(view(values_, segment));
  parameter.mutable_grad() = gradients_.defined() ? view(gradients_, segment) : at::Tensor();
  if (working_copy_) working_copy_->add(parameter);
}

const at::Tensor& Arena::values() const {
  GPUTRAIN_ASSERT(!keeps_owned_values_only(), "the arena has whole values");
  return values_;
}

const Segment& Arena::segment_of(const at::Tensor& parameter) const {
  const auto found =
      std::ranges::find_if(arena_tensors_, [&](const at::Tensor& one) { return one.is_same(parameter); });
  GPUTRAIN_ASSERT(found != arena_tensors_.end(), "a parameter of the arena");
  return segments_[static_cast<size_t>(found - arena_tensors_.begin())];
}

void Arena::place_frozen(const std::vector<ArenaTensor>& arena_tensors) {
  std::map<at::ScalarType, int64_t> numel;
  for (const ArenaTensor& one : arena_tensors) {
    if (!one.trainable) numel[frozen_type_of(one)] += padded_size(one.value.numel(), frozen_type_of(one));
  }
  std::map<at::ScalarType, at::Tensor> flat;
  for (const auto& [type, count] : numel) {
    flat[type] = flat_zeros(count, values_.options().dtype(type));
    frozen_values_.push_back(flat[type]);
  }
  std::map<at::ScalarType, int64_t> offset;
  for (const ArenaTensor& one : arena_tensors) {
    if (one.trainable) continue;
    const at::ScalarType type = frozen_type_of(one);
    at::Tensor value = one.value;
    value.set_data(at::as_strided(flat[type], value.sizes(), value.strides(), offset[type]));
    offset[type] += padded_size(value.numel(), type);
    frozen_.emplace_back(one.name, value);
  }
}

void Arena::share_out_frozen(const std::vector<ArenaTensor>& arena_tensors) {
  std::map<std::pair<int64_t, at::ScalarType>, std::vector<const ArenaTensor*>> by_part;
  for (const ArenaTensor& one : arena_tensors) {
    if (!one.trainable) by_part[{one.unit, frozen_type_of(one)}].push_back(&one);
  }
  std::map<at::ScalarType, int64_t> of_rank;
  for (const auto& [key, tensors] : by_part) {
    const auto& [unit, type] = key;
    FrozenPart& part = frozen_parts_.emplace_back(FrozenPart{.unit = unit, .segments = {}, .values = {}, .own = {}});
    int64_t numel = 0;
    for (const ArenaTensor* one : tensors) {
      part.segments.push_back(segment_at(numel, *one, type));
      numel += part.segments.back().padded;
    }
    part.values = at::empty({padded_size(numel, type, shards_)}, values_.options().dtype(type));
    for (size_t i = 0; i < tensors.size(); ++i) {
      at::Tensor value = tensors[i]->value;
      value.set_data(view(part.values, part.segments[i]));
      frozen_.emplace_back(tensors[i]->name, value);
    }
    take_memory(part.values);
    of_rank[type] += part.values.numel() / shards_;
  }
  for (const auto& [type, numel] : of_rank) {
    const at::Tensor flat = frozen_values_.emplace_back(flat_zeros(numel, values_.options().dtype(type)));
    int64_t at = 0;
    for (FrozenPart& part : frozen_parts_) {
      if (part.values.scalar_type() != type) continue;
      part.own = flat.narrow(0, at, part.values.numel() / shards_);
      at += part.own.numel();
    }
  }
}

std::vector<int64_t> Segment::order() const {
  std::vector<int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::erase_if(order, [&](int64_t dimension) { return sizes[static_cast<size_t>(dimension)] == 1; });
  const auto stride = [&](int64_t dimension) { return strides[static_cast<size_t>(dimension)]; };
  const auto farther = [&](int64_t a, int64_t b) { return stride(a) > stride(b); };
  if (std::ranges::is_sorted(order, farther)) return {};
  std::ranges::stable_sort(order, farther);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) order.push_back(static_cast<int64_t>(i));
  }
  return order;
}

std::vector<Range> Arena::unit_ranges() const { return ranges_of_units(segments_); }

Shard Arena::shard_of(int64_t rank) const {
  Shard shard;
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    const int64_t share = part->size() / shards_, begin = part->begin + rank * share;
    shard.push_back({.begin = begin, .end = begin + share});
  }
  return shard;
}

int64_t Arena::share() const {
  GPUTRAIN_ASSERT(keeps_owned_values_only() && !owned_.empty(), "the rank owns a shard");
  const int64_t begin = owned_.front().range.begin;
  const auto part =
      std::ranges::find_if(parts_, [&](const Range& one) { return one.begin <= begin && begin < one.end; });
  return (begin - part->begin) / (part->size() / shards_);
}

void Arena::own(const Shard& shard) {
  owned_.clear();
  int64_t at = 0, before = 0;
  for (const Range& range : shard) {
    GPUTRAIN_ASSERT(before <= range.begin && range.begin <= range.end && range.end <= numel_, "ranges of the arena");
    before = range.end;
    if (range.size() == 0) continue;
    owned_.push_back({.range = range, .at = at});
    at += range.size();
  }
  if (kept_ == Kept::owned) owned_gradients_ = make_state(owned_numel(), type());
  const bool has_values = owned_values_.defined() && owned_values_.numel() == owned_numel();
  if (keeps_owned_values_only() && !has_values) owned_values_ = make_state(owned_numel(), type());
}

std::vector<at::Tensor> Arena::gradients_of_pieces() const {
  if (kept_ == Kept::owned) return {owned_gradients_};
  if (owned_.empty()) return {gradients_.narrow(0, 0, 0)};
  std::vector<at::Tensor> gradients;
  for (const Piece& piece : owned_) gradients.push_back(gradients_.narrow(0, piece.range.begin, piece.range.size()));
  return gradients;
}

void Arena::clear_gradients() { kept_gradients().zero_(); }

at::Tensor Arena::make_state() const { return make_state(owned_numel(), state_type()); }

at::Tensor Arena::make_state(int64_t numel, at::ScalarType type) const {
  return flat_zeros(numel, values_.options().dtype(type));
}

at::Tensor Arena::state_view(const at::Tensor& state, const Segment& segment) const {
  for (const Piece& piece : owned_) {
    if (piece.range.begin > segment.offset || segment.offset + segment.numel > piece.range.end) continue;
    return at::as_strided(state, segment.sizes, segment.strides, segment.offset - piece.range.begin + piece.at);
  }
  GPUTRAIN_ASSERT(false, "the rank owns " + segment.name);
  return {};
}

at::Tensor Arena::view(const at::Tensor& flat, const Segment& segment) const {
  return at::as_strided(flat, segment.sizes, segment.strides, segment.offset);
}

void Arena::check_views() const {
  for (size_t i = 0; i < segments_.size(); ++i) {
    const std::string& name = segments_[i].name;
    const bool is_in_part = std::ranges::any_of(
        gathered_, [&](const GatheredPart& part) { return arena_tensors_[i].is_alias_of(part.values); });
    GPUTRAIN_ASSERT(is_in_part || lives_in(arena_tensors_[i], values_, segments_[i]),
                    "the value left the arena: " + name);
    const at::Tensor& gradient = arena_tensors_[i].grad();
    const bool is_ours = gradients_.defined() ? lives_in(gradient, gradients_, segments_[i]) : !gradient.defined();
    GPUTRAIN_ASSERT(is_ours, "the gradient left the arena: " + name);
  }
  for (const auto& [name, value] : frozen_) {
    GPUTRAIN_ASSERT(!value.grad().defined(), "a frozen parameter has a gradient: " + name);
  }
}

}  // namespace gputrain::device

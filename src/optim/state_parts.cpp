#include "state_parts.hpp"

#include <algorithm>

#include "gputrain/device/offload.hpp"

namespace gputrain::optim {

StateParts::StateParts(const device::Arena& arena, const std::vector<at::ScalarType>& types, int64_t most)
    : arena_(arena) {
  const int64_t numel = arena.owned_numel();
  const bool is_on_host = arena.keeps_state_on_host() && !arena.options().device().is_meta();
  for (const at::ScalarType type : types) {
    whole_.push_back(is_on_host ? device::host_zeros(numel, type, arena.options().device())
                                : arena.make_state(numel, type));
  }
  const int64_t each = arena.keeps_state_on_host() ? most : std::max<int64_t>(numel, 1);
  for (int64_t begin = 0; begin < numel; begin += each) parts_.push_back({begin, std::min(begin + each, numel)});
  if (!arena.keeps_state_on_host()) return;
  for (size_t place = 0; place < std::min(places_.size(), parts_.size()); ++place) {
    for (const at::ScalarType type : types) places_[place].push_back(arena.make_state(parts_.front().size(), type));
  }
}

std::vector<std::vector<UpdateGroup>> StateParts::split(const std::vector<UpdateGroup>& groups) const {
  std::vector<std::vector<UpdateGroup>> split;
  for (const device::Range& part : parts_) {
    std::vector<UpdateGroup>& here = split.emplace_back();
    for (const UpdateGroup& group : groups) {
      UpdateGroup cut = group;
      cut.ranges.clear();
      for (UpdateRange range : group.ranges) {
        const int64_t skipped = std::max<int64_t>(0, part.begin - range.state_at);
        range.size = std::min(range.size, part.end - range.state_at) - skipped;
        if (range.size <= 0) continue;
        for (int64_t* place : {&range.values_at, &range.gradients_at, &range.state_at, &range.rounded.begin})
          *place += skipped;
        range.state_at -= part.begin;
        cut.ranges.push_back(range);
      }
      if (!cut.ranges.empty()) here.push_back(std::move(cut));
    }
  }
  return split;
}

void StateParts::each(const Update& update) const {
  if (parts_.empty()) return;
  if (!arena_.keeps_state_on_host()) return update(0, whole_);
  struct Place {
    std::vector<at::Tensor> states;
    device::Transfer arrival, store;  // the last ones; earlier ones end before, on the same stream
  };
  std::array<Place, 2> places;
  const auto on_host = [&](size_t part, size_t i) {
    return whole_[i].narrow(0, parts_[part].begin, parts_[part].size());
  };
  const auto load = [&](size_t part) {
    Place& place = places[part % 2];
    place.states.clear();
    for (size_t i = 0; i < whole_.size(); ++i) {
      place.states.push_back(places_[part % 2][i].narrow(0, 0, parts_[part].size()));
      place.arrival = device::Transfer(place.states[i], on_host(part, i), place.store);
    }
  };
  load(0);
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (part + 1 < parts_.size()) load(part + 1);
    Place& place = places[part % 2];
    place.arrival.await();
    update(part, place.states);
    for (size_t i = 0; i < whole_.size(); ++i) place.store = device::Transfer(on_host(part, i), place.states[i]);
  }
  for (const Place& place : places) place.store.await();  // the host may read the state once this stream has ended
}

int64_t StateParts::bytes_on_host() const {
  int64_t bytes = 0;
  for (const at::Tensor& whole : whole_)
    bytes += arena_.keeps_state_on_host() ? static_cast<int64_t>(whole.nbytes()) : 0;
  return bytes;
}

}  // namespace gputrain::optim

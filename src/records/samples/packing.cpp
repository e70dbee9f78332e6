#include "packing.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "gputrain/core/error.hpp"

namespace gputrain::records {

std::span<const int64_t> PackedRows::row(int64_t index) const {
  const auto at = static_cast<size_t>(index);
  const int64_t begin = at == 0 ? 0 : ends[at - 1];
  return std::span(samples).subspan(static_cast<size_t>(begin), static_cast<size_t>(ends[at] - begin));
}

PackedRows pack(std::span<const int64_t> lengths, int64_t capacity, int64_t most) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length_of = [&](int64_t sample) { return lengths[static_cast<size_t>(sample)]; };
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return length_of(a) > length_of(b); });
  std::vector<std::vector<int64_t>> rows;
  std::multimap<int64_t, size_t> open;  // rows by the room that is left
  for (const int64_t sample : order) {
    const int64_t length = length_of(sample);
    GPUTRAIN_ASSERT(length > 0 && length <= capacity, "a sample is longer than a row");
    const auto fullest = open.lower_bound(length);
    const size_t row = fullest == open.end() ? rows.size() : fullest->second;
    const int64_t room = (fullest == open.end() ? capacity : fullest->first) - length;
    if (fullest == open.end()) {
      rows.emplace_back();
    } else {
      open.erase(fullest);
    }
    rows[row].push_back(sample);
    const bool is_full = room == 0 || (most > 0 && std::ssize(rows[row]) == most);
    if (!is_full) open.emplace(room, row);
  }
  PackedRows packed;
  for (std::vector<int64_t>& row : rows) {
    std::ranges::sort(row);
    packed.samples.insert(packed.samples.end(), row.begin(), row.end());
    packed.ends.push_back(std::ssize(packed.samples));
  }
  return packed;
}

}  // namespace gputrain::records

// Packing of samples into shared rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gputrain::records {

/// Rows of samples, by their index.
struct PackedRows {
  std::vector<int64_t> samples;  // samples of all rows, one row after the other
  std::vector<int64_t> ends;     // end of each row, in `samples`

  int64_t size() const noexcept { return static_cast<int64_t>(ends.size()); }
  std::span<const int64_t> row(int64_t index) const;
};

/// Packs by best fit, longest samples first: each goes into the fullest row that has room for it (Johnson et al.,
/// "Worst-case performance bounds for simple one-dimensional packing algorithms", 1974). Depends on the lengths alone,
/// which are at most `capacity`, and on `most`, the samples that a row may have; 0: any number.
PackedRows pack(std::span<const int64_t> lengths, int64_t capacity, int64_t most = 0);

}  // namespace gputrain::records

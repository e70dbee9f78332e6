#include "slice_runs.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gputrain::checkpoint {

SliceRuns::SliceRuns(const Slice& slice, int64_t count) : begin_(slice.begin), end_(slice.begin + count) {
  if (count == 0) return;
  if (!slice.cut) {
    row_ = cut_row_ = end_;
    ranges_ = {{.begin = 0, .end = end_, .at = 0}};
  } else {
    const auto dim = slice.shape.begin() + slice.cut->dim;
    int64_t inner = 1;  // elements of one index along the dimension of the cut
    for (auto size = dim + 1; size != slice.shape.end(); ++size) inner *= *size;
    row_ = *dim * inner;
    for (const auto& [begin, end] : slice.cut->ranges) {
      ranges_.push_back({.begin = begin * inner, .end = end * inner, .at = cut_row_});
      cut_row_ += (end - begin) * inner;
    }
  }
  go_to(begin_);
}

void SliceRuns::go_to(int64_t at) {
  run_ = {.at = at - begin_};
  if (at >= end_) return;
  const int64_t row = at / cut_row_, in_row = at % cut_row_;
  const Range& range =
      *std::prev(std::ranges::upper_bound(ranges_, in_row, {}, &Range::at));  // the first one begins at 0
  const int64_t in_whole_row = range.begin + in_row - range.at;
  run_.whole = row * row_ + in_whole_row;
  run_.count = std::min(range.end - in_whole_row, end_ - at);
}

void SliceRuns::skip_to(int64_t whole) {
  const int64_t ahead = whole - run_.whole;
  if (is_at_end() || ahead <= 0) return;
  if (ahead < run_.count) {
    run_ = {.at = run_.at + ahead, .whole = whole, .count = run_.count - ahead};
    return;
  }
  const int64_t row = whole / row_, in_row = whole % row_;
  const auto range = std::ranges::upper_bound(ranges_, in_row, {}, &Range::end);
  const int64_t in_cut_row =
      range == ranges_.end() ? cut_row_ : range->at + std::max<int64_t>(0, in_row - range->begin);
  go_to(row * cut_row_ + in_cut_row);
}

SharedRuns::SharedRuns(SliceRuns from, SliceRuns to) : from_(std::move(from)), to_(std::move(to)) { go_to(0); }

void SharedRuns::go_to(int64_t whole) {
  from_.skip_to(whole);
  to_.skip_to(whole);
  while (!from_.is_at_end() && !to_.is_at_end() && from_.run().whole != to_.run().whole) {
    const int64_t both = std::max(from_.run().whole, to_.run().whole);
    from_.skip_to(both);
    to_.skip_to(both);
  }
  count_ = std::min(from_.run().count, to_.run().count);
}

}  // namespace gputrain::checkpoint

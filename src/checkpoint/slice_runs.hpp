// The elements of a slice as runs of consecutive elements of the whole tensor, and what two slices of a tensor share.
// Does not use LibTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/checkpoint/manifest.hpp"

namespace gputrain::checkpoint {

/// Goes through the runs of a slice in ascending order. A slice without a cut is one run.
class SliceRuns {
 public:
  struct Run {
    int64_t at = 0;     // its first element in the slice
    int64_t whole = 0;  // the same element in the whole tensor, counted in the slice's order
    int64_t count = 0;  // elements; 0 behind the last run
  };

  /// `slice` has no flaw and, from its begin, at least `count` elements.
  SliceRuns(const Slice& slice, int64_t count);

  const Run& run() const noexcept { return run_; }
  bool is_at_end() const noexcept { return run_.count == 0; }
  void next() { go_to(begin_ + run_.at + run_.count); }

  /// Goes to the slice's first element that is not before element `whole` of the whole tensor; never back.
  void skip_to(int64_t whole);

 private:
  /// A range of a row of the whole tensor, and its place in a row of the cut. A row is what one index of all dimensions
  /// before the one of the cut has.
  struct Range {
    int64_t begin, end, at;
  };

  void go_to(int64_t at);

  std::vector<Range> ranges_;
  int64_t row_ = 0, cut_row_ = 0;  // elements
  int64_t begin_ = 0, end_ = 0;    // elements of the slice in the cut
  Run run_;
};

/// Goes through the elements that two slices of one tensor share, in runs that are consecutive in both. Both count the
/// tensor's elements in the same order.
class SharedRuns {
 public:
  SharedRuns(SliceRuns from, SliceRuns to);

  int64_t from() const noexcept { return from_.run().at; }  // the run's first element in one slice
  int64_t to() const noexcept { return to_.run().at; }      // and in the other
  int64_t count() const noexcept { return count_; }         // elements; 0 behind the last run
  bool is_at_end() const noexcept { return count_ == 0; }
  void next() { go_to(from_.run().whole + count_); }

 private:
  void go_to(int64_t whole);

  SliceRuns from_, to_;
  int64_t count_ = 0;
};

}  // namespace gputrain::checkpoint

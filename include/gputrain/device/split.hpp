// How ranks share a tensor (tensor parallelism): each has a part of it, cut along one dimension.
#pragma once

#include <cstdint>
#include <vector>

namespace gputrain::device {

struct Split {
  int64_t dim = 0;
  /// Sizes of the sections that lie along `dim`, such as queries, keys and values. Each is cut into one part per rank;
  /// the parts are neighbours and differ by one element at most.
  std::vector<int64_t> sections;
  int rank = 0, ranks = 1;

  struct Range {
    int64_t begin = 0, end = 0;
    int64_t size() const noexcept { return end - begin; }
  };
  /// Returns the ranges that a rank has along `dim` of the whole tensor: one of each section, in ascending order.
  std::vector<Range> ranges_of(int of_rank) const {
    std::vector<Range> ranges;
    int64_t before = 0;
    for (const int64_t size : sections) {
      ranges.push_back({before + size * of_rank / ranks, before + size * (of_rank + 1) / ranks});
      before += size;
    }
    return ranges;
  }
  std::vector<Range> ranges() const { return ranges_of(rank); }
  int64_t size_of(int of_rank) const {
    int64_t sum = 0;
    for (const Range& range : ranges_of(of_rank)) sum += range.size();
    return sum;
  }
  int64_t whole_size() const {
    int64_t sum = 0;
    for (const int64_t size : sections) sum += size;
    return sum;
  }
  /// Returns the sizes of the whole tensor, by those of a part.
  std::vector<int64_t> whole_sizes(std::vector<int64_t> part) const {
    part[static_cast<size_t>(dim)] = whole_size();
    return part;
  }
};

}  // namespace gputrain::device

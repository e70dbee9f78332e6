// Runs of slices against lists of single elements.
#include "../../src/checkpoint/slice_runs.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace gputrain::checkpoint {
namespace {

struct RandomSlice {
  Slice slice;
  std::vector<int64_t> elements;  // of the whole tensor
};

class SliceRunsTest : public ::testing::Test {
 protected:
  int64_t draw(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(generator_); }

  /// Each index along the dimension is kept or not.
  std::vector<bool> random_cut(Slice& slice) {
    if (slice.shape.empty() || draw(3) == 0) return {};
    slice.cut = Cut{.dim = draw(std::ssize(slice.shape) - 1), .ranges = {}};
    std::vector<bool> kept(static_cast<size_t>(slice.shape[static_cast<size_t>(slice.cut->dim)]));
    for (size_t i = 0; i < kept.size(); ++i) {
      kept[i] = draw(1) == 1;
      const auto index = static_cast<int64_t>(i);
      if (!kept[i]) continue;
      if (i > 0 && kept[i - 1] && draw(3) > 0)
        slice.cut->ranges.back().end = index + 1;
      else  // often beside the range before
        slice.cut->ranges.push_back({.begin = index, .end = index + 1});
    }
    if (slice.cut->ranges.empty()) slice.cut.reset(), kept.clear();
    return kept;
  }

  RandomSlice random_slice(const std::vector<int64_t>& shape) {
    RandomSlice made{.slice = {.shape = shape}, .elements = {}};
    const std::vector<bool> kept = random_cut(made.slice);
    int64_t numel = 1, inner = 1;
    for (const int64_t size : shape) numel *= size;
    if (made.slice.cut) {
      for (auto dim = static_cast<size_t>(made.slice.cut->dim) + 1; dim < shape.size(); ++dim) inner *= shape[dim];
    }
    for (int64_t element = 0; element < numel; ++element) {
      if (kept.empty() || kept[static_cast<size_t>(element / inner) % kept.size()]) made.elements.push_back(element);
    }
    made.slice.begin = draw(std::ssize(made.elements));
    made.elements.erase(made.elements.begin(), made.elements.begin() + made.slice.begin);
    made.elements.resize(static_cast<size_t>(draw(std::ssize(made.elements))));
    return made;
  }

  std::vector<int64_t> random_shape() {
    std::vector<int64_t> shape(static_cast<size_t>(draw(4)));
    for (int64_t& size : shape) size = draw(19) == 0 ? 0 : 1 + draw(5);
    return shape;
  }

  static SliceRuns runs_of(const RandomSlice& from) { return {from.slice, std::ssize(from.elements)}; }

 private:
  std::mt19937 generator_{7};
};

TEST_F(SliceRunsTest, HaveTheElementsOfTheSliceInOrder) {
  for (int round = 0; round < 3000; ++round) {
    const RandomSlice made = random_slice(random_shape());
    ASSERT_EQ(flaw_of(made.slice), "");
    std::vector<int64_t> elements;
    for (SliceRuns runs = runs_of(made); !runs.is_at_end(); runs.next()) {
      ASSERT_EQ(runs.run().at, std::ssize(elements));
      for (int64_t i = 0; i < runs.run().count; ++i) elements.push_back(runs.run().whole + i);
    }
    ASSERT_EQ(elements, made.elements) << round;
  }
}

TEST_F(SliceRunsTest, SkipToAnElementOrTheNextOne) {
  for (int round = 0; round < 3000; ++round) {
    const RandomSlice made = random_slice(random_shape());
    SliceRuns runs = runs_of(made);
    for (int64_t whole = draw(20); !runs.is_at_end(); whole += draw(20)) {
      runs.skip_to(whole);
      const auto next = std::ranges::lower_bound(made.elements, whole);
      ASSERT_EQ(runs.is_at_end(), next == made.elements.end()) << round;
      if (runs.is_at_end()) break;
      ASSERT_EQ(runs.run().whole, *next) << round;
      ASSERT_EQ(runs.run().at, next - made.elements.begin()) << round;
      const int64_t last = runs.run().at + runs.run().count - 1;
      ASSERT_EQ(made.elements.at(static_cast<size_t>(last)), *next + runs.run().count - 1) << round;
    }
  }
}

TEST_F(SliceRunsTest, AreSharedWhereBothHaveAnElement) {
  for (int round = 0; round < 3000; ++round) {
    const std::vector<int64_t> shape = random_shape();
    const RandomSlice a = random_slice(shape), b = random_slice(shape);
    std::vector<std::pair<int64_t, int64_t>> shared, expected;
    for (SharedRuns runs(runs_of(a), runs_of(b)); !runs.is_at_end(); runs.next()) {
      for (int64_t i = 0; i < runs.count(); ++i) shared.emplace_back(runs.from() + i, runs.to() + i);
    }
    for (size_t i = 0; i < a.elements.size(); ++i) {
      const auto same = std::ranges::lower_bound(b.elements, a.elements[i]);
      if (same != b.elements.end() && *same == a.elements[i])
        expected.emplace_back(static_cast<int64_t>(i), same - b.elements.begin());
    }
    ASSERT_EQ(shared, expected) << round;
  }
}

}  // namespace
}  // namespace gputrain::checkpoint

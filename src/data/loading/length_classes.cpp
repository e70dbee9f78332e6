#include "length_classes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <ATen/ops/max.h>

#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

// Rows of this many elements are aligned for any kernel.
constexpr int64_t kStep = 16;

int64_t rounded_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

struct Length {
  int64_t length, batches;
};

/// Returns the lengths that occur, rounded up so that they are a few hundred at most, ascending up to `most`.
std::vector<Length> lengths_that_occur(const std::vector<int64_t>& longest, int64_t most) {
  constexpr int64_t kMostLengths = 512;
  const int64_t step = rounded_up(std::max<int64_t>(1, most / kMostLengths), kStep);
  std::map<int64_t, int64_t> counts{{most, 1}};
  for (const int64_t length : longest) ++counts[std::min(most, rounded_up(length, step))];
  std::vector<Length> lengths;
  for (const auto& [length, batches] : counts) lengths.push_back({length, batches});
  return lengths;
}

/// Returns the longest that a sample may be in the ragged fields of each pass.
std::map<int, int64_t> longest_by_pass(const Dataset& dataset) {
  std::map<int, int64_t> longest;
  for (const Field& field : dataset.layout().fields)
    if (field.ragged) longest[field.pass] = std::max(longest[field.pass], field.sizes.front());
  return longest;
}

/// Returns the entries of the longest sample that counts, at least 1.
int64_t longest_of(const at::Tensor& counts, int64_t counted) {
  return counted == 0 ? 1 : std::max<int64_t>(1, counts.narrow(0, 0, counted).max().item<int64_t>());
}

}  // namespace

LengthClasses LengthClasses::fitted(const std::vector<int64_t>& longest, int64_t most, int64_t count) {
  // Least saving by one class more: about the cost of the choices and the graph for its shapes.
  constexpr double kLeastSaved = 0.005;
  const std::vector<Length> lengths = lengths_that_occur(longest, most);
  const size_t size = lengths.size(), classes = std::min(size, static_cast<size_t>(count));
  std::vector<int64_t> batches{0};  // sums over the first lengths
  for (const Length& each : lengths) batches.push_back(batches.back() + each.batches);
  // Least sum of lengths of the first `end` kinds of batches in k classes, and where the last of these begins.
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::vector<std::vector<std::pair<int64_t, size_t>>> best(classes + 1,
                                                            std::vector(size + 1, std::pair{kNone, size_t{0}}));
  best[0][0].first = 0;
  for (size_t k = 1; k <= classes; ++k)
    for (size_t end = k; end <= size; ++end)
      for (size_t begin = k - 1; begin < end; ++begin) {
        if (best[k - 1][begin].first == kNone) continue;
        const int64_t sum = best[k - 1][begin].first + lengths[end - 1].length * (batches[end] - batches[begin]);
        best[k][end] = std::min(best[k][end], {sum, begin});
      }
  const auto cost = [&](size_t k) {
    return static_cast<double>(best[k][size].first) +
           kLeastSaved * static_cast<double>(k) * static_cast<double>(best[1][size].first);
  };
  size_t chosen = 1;
  for (size_t k = 2; k <= classes; ++k)
    if (cost(k) < cost(chosen)) chosen = k;
  std::vector<int64_t> ends;
  for (size_t k = chosen, end = size; k > 0; end = best[k--][end].second) ends.push_back(lengths[end - 1].length);
  std::ranges::reverse(ends);
  return LengthClasses(std::move(ends));
}

LengthClasses LengthClasses::halved(int64_t most) {
  std::vector<int64_t> ends{most};
  while (ends.back() > kStep) ends.push_back(rounded_up((ends.back() + 1) / 2, kStep));
  std::ranges::reverse(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return LengthClasses(std::move(ends));
}

int64_t LengthClasses::of(int64_t length) const {
  const auto found = std::ranges::lower_bound(classes_, length);
  GPUTRAIN_ASSERT(found != classes_.end(), "a text is longer than the longest class");
  return *found;
}

std::vector<int64_t> lengths_of(const RowReader& reader, const std::map<int, LengthClasses>& classes, int64_t index,
                                const BatchBuffers& filled) {
  const auto& fields = reader.dataset().layout().fields;
  const int64_t counted = reader.plan().micro_batch(index).counted;
  std::vector<int64_t> lengths(fields.size());
  std::map<int, int64_t> longest;  // longest by pass
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!fields[i].ragged) continue;
    lengths[i] = longest_of(filled.counts[i], counted);
    int64_t& of_pass = longest[fields[i].pass];
    of_pass = std::max(of_pass, lengths[i]);
  }
  for (auto& [pass, of_pass] : longest) {
    if (classes.empty()) break;
    of_pass = classes.at(pass).of(std::max(of_pass, reader.longest_on_all_ranks(index, pass)));
    for (size_t i = 0; i < fields.size(); ++i)
      if (fields[i].ragged && fields[i].pass == pass) lengths[i] = of_pass;
  }
  return lengths;
}

bool is_full(const Dataset& dataset, int pass) {
  const int64_t longest = longest_by_pass(dataset).at(pass);
  for (int64_t i = 0; i < dataset.size(); ++i)
    if (dataset.length_of_pass(i, pass) != longest) return false;
  return dataset.size() > 0;
}

std::map<int, LengthClasses> length_classes(const std::shared_ptr<const Dataset>& dataset,
                                            const LoaderOptions& options) {
  constexpr int64_t kMostSamples = int64_t{1} << 16;
  const std::map<int, int64_t> most = longest_by_pass(*dataset);
  // The shapes of a batch are a choice of one class for each pass.
  const auto each = static_cast<int64_t>(
      std::pow(static_cast<double>(options.length_classes), 1 / static_cast<double>(std::max<size_t>(1, most.size()))));
  const RowReader reader(dataset, options);  // from the first epoch on, wherever the loader begins
  const int64_t per_step = reader.plan().micro_batches_per_step(),
                steps = std::clamp<int64_t>(kMostSamples / options.partition.global_batch, 1,
                                            reader.plan().steps_per_epoch());
  std::map<int, LengthClasses> classes;
  for (const auto& [pass, longest] : most) {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < steps * per_step; ++i) lengths.push_back(reader.longest_on_all_ranks(i, pass));
    const bool is_known = std::ranges::find(lengths, 0) == lengths.end();
    classes.emplace(pass, is_known ? LengthClasses::fitted(lengths, longest, std::max<int64_t>(2, each))
                                   : LengthClasses::halved(longest));
  }
  return classes;
}

}  // namespace gputrain::data

// Classes of lengths to which batches of texts are rounded up.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "batch_buffers.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/loader.hpp"
#include "row_reader.hpp"

namespace gputrain::data {

/// Classes of lengths. A GPU chooses kernels, searches for algorithms and records graphs for each shape. So a batch of
/// texts there is not as long as its longest text, but as the shortest class that holds it.
class LengthClasses {
 public:
  /// Returns the classes, at most `count`, that add the least padding to micro-batches whose longest texts have these
  /// lengths. Fewer, where one more would save next to nothing. The longest class is `most`, the maximum of any text.
  static LengthClasses fitted(const std::vector<int64_t>& longest, int64_t most, int64_t count);
  /// Returns `most` and its halves, down to 16.
  static LengthClasses halved(int64_t most);

  int64_t of(int64_t length) const;  // returns the shortest class that holds it; it is at most `most`
  const std::vector<int64_t>& all() const noexcept { return classes_; }

 private:
  explicit LengthClasses(std::vector<int64_t> ascending) : classes_(std::move(ascending)) {}

  std::vector<int64_t> classes_;
};

/// Returns the classes of the ragged fields of each pass; see Field::pass. They are fitted to the micro-batches of the
/// first epoch: the same on all ranks, and wherever the loader begins.
std::map<int, LengthClasses> length_classes(const std::shared_ptr<const Dataset>& dataset,
                                            const LoaderOptions& options);

/// Returns the length of each ragged field in micro-batch `index`, and 0 for others: that of its longest sample, or,
/// with classes, that of the class. All ranks then have the same one, so that they record and replay the same steps.
std::vector<int64_t> lengths_of(const RowReader& reader, const std::map<int, LengthClasses>& classes, int64_t index,
                                const BatchBuffers& filled);

/// Returns whether every sample has as many entries in the ragged fields of a pass as the longest may have.
bool is_full(const Dataset& dataset, int pass);

}  // namespace gputrain::data

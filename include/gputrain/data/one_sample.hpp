// One sample in memory of its own, outside a loader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

class OneSample {
 public:
  /// Reads the sample. Throws Error(data) if it cannot be read.
  OneSample(const Dataset& dataset, int64_t index, const ReadContext& context);

  /// Returns the values of field number `field`. T must be as large as the field's element type.
  template <class T>
  const T* values(size_t field) const {
    GPUTRAIN_ASSERT(sizeof(T) == memory_[field].element_bytes, "a field is read as another type than it has");
    return reinterpret_cast<const T*>(values_[field].data());
  }
  int64_t count(size_t field) const { return counts_[field]; }  // counts entries of a ragged field

 private:
  std::vector<std::vector<std::byte>> values_;
  std::vector<int64_t> counts_;
  BatchMemory memory_;
};

}  // namespace gputrain::data

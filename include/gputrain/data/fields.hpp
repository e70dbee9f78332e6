// What a sample is made of, and where a format writes one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include "gputrain/core/batch.hpp"

namespace gputrain::data {

/// One named tensor of a sample.
struct Field {
  std::string name;
  at::ScalarType type = at::kLong;
  std::vector<int64_t> sizes = {};  // of one sample; empty: one value
  double fill = 0;                  // value of padding, and of samples that cannot be read
  /// Samples differ in length: sizes[0] is the most entries that one may have. A batch carries the counts, and is as
  /// long as its longest sample. The rest is `fill`.
  bool ragged = false;
  /// What is learned. In rows that only fill a batch it has its fill value, and no entries if it is ragged.
  bool target = false;

  int64_t numel() const;
  size_t bytes() const;
};

/// What one sample looks like in a batch.
struct SampleLayout {
  std::vector<Field> fields;  // the first is the model's main input
  int64_t num_classes = 0;    // classes, or vocabulary size; 0: the target is no class

  /// uint8 [height, width, channels], with one class each.
  static SampleLayout images(int64_t height, int64_t width, int64_t channels, int64_t classes);
  /// Tokens and the token that follows each.
  static SampleLayout tokens(int64_t length, int64_t vocabulary);
  /// Values of any sizes and type, with one class each. Floats reach the model in the type that it computes in.
  static SampleLayout values(std::vector<int64_t> sizes, at::ScalarType type, int64_t classes);

  const Field& input() const { return fields.front(); }
  const Field* find(std::string_view name) const noexcept;  // null: none of this name
  /// The first field that is learned; null: none.
  const Field* target() const noexcept;
  /// Whether the input is uint8 [height, width, channels], which Preprocess turns into normalised floats.
  bool is_image() const noexcept;
  /// Tokens that a sample may have; 0: it has none.
  int64_t token_count() const noexcept;
  size_t bytes() const;  // of one sample
};

/// The memory of a micro-batch, field by field in the layout's order. Row i of a field is at values + i * bytes.
struct FieldMemory {
  std::byte* values = nullptr;
  int64_t* counts = nullptr;  // null unless the field is ragged
  size_t bytes = 0;           // of one row
  size_t element_bytes = 0;
};
using BatchMemory = std::vector<FieldMemory>;

/// Where one sample is written: a row of a micro-batch.
class SampleRow {
 public:
  SampleRow(const BatchMemory& memory, int64_t row) : memory_(memory), row_(row) {}

  /// The values of field number `field` of the layout. T has the size of the field's type.
  template <class T>
  T* values(size_t field) const {
    GPUTRAIN_ASSERT(sizeof(T) == memory_[field].element_bytes, "a field is written as another type than it has");
    return reinterpret_cast<T*>(bytes(field));
  }

  std::byte* bytes(size_t field) const noexcept {
    return memory_[field].values + static_cast<size_t>(row_) * memory_[field].bytes;
  }

  /// Entries written into a ragged field.
  void set_count(size_t field, int64_t count) const { memory_[field].counts[row_] = count; }
  int64_t count(size_t field) const { return memory_[field].counts[row_]; }

 private:
  const BatchMemory& memory_;
  int64_t row_;
};

}  // namespace gputrain::data

// The fields of a sample, and the memory into which a dataset writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include "gputrain/data/batch.hpp"

namespace gputrain::data {

/// One named tensor of a sample.
struct Field {
  std::string name;
  at::ScalarType type = at::kLong;
  std::vector<int64_t> sizes = {};  // sizes of one sample; empty: one value
  double fill = 0;                  // value of padding and of unreadable samples
  /// True: samples differ in length, and sizes[0] is the maximum. A batch stores the counts and is as long as its
  /// longest sample; padding has the value `fill`.
  bool ragged = false;
  /// Number of the model's pass that reads the field; ragged fields of one pass may have one length in a batch.
  int pass = 0;
  /// True: a training target. In padding rows it holds `fill`; if it is ragged, its count there is 0.
  bool target = false;

  int64_t numel() const;
  size_t bytes() const;
};

/// The fields of one sample.
struct SampleLayout {
  std::vector<Field> fields;  // the first is the model's main input
  /// Numbers that a model gives for each target: one for each class, for each token of the vocabulary, or for each
  /// number to learn. 0: the data does not say.
  int64_t outputs = 0;
  int64_t vocabulary = 0;    // tokens are numbers below this; 0: the samples are no tokens
  int64_t texts_in_row = 0;  // maximum of texts, with its end, that kPositions tells apart in a sample; 0: one text
  int64_t longest_text = 0;  // maximum of tokens of one of them

  /// Returns a layout of uint8 [height, width, channels], with one class per sample.
  static SampleLayout images(int64_t height, int64_t width, int64_t channels, int64_t classes);
  /// Returns the same with a float [numbers] for each sample: numbers, or a set of classes as zeros and ones.
  static SampleLayout images_with_numbers(int64_t height, int64_t width, int64_t channels, int64_t numbers);
  /// Returns images() with a class for each pixel.
  static SampleLayout masked_images(int64_t height, int64_t width, int64_t channels, int64_t classes);
  /// Returns a layout of tokens, and for each the token that follows it.
  static SampleLayout tokens(int64_t length, int64_t vocabulary);
  /// Returns a layout of values of any sizes and type, with one class per sample; floats get the model's type.
  static SampleLayout values(std::vector<int64_t> sizes, at::ScalarType type, int64_t classes);

  const Field& input() const { return fields.front(); }
  const Field* find(std::string_view name) const noexcept;  // returns null if there is no such field
  /// Returns the first target field; null if there is none.
  const Field* target() const noexcept;
  /// Returns whether the input is uint8 [height, width, channels], which Preprocess turns into normalised floats.
  bool is_image() const noexcept;
  /// Returns the maximum number of tokens in a sample; 0: it has no tokens.
  int64_t token_count() const noexcept;
  size_t bytes() const;  // counts the bytes of one sample
};

/// Memory of a micro-batch, field by field in the order of the layout. Row i of a field is at values + i * bytes.
struct FieldMemory {
  std::byte* values = nullptr;
  int64_t* counts = nullptr;  // null unless the field is ragged
  size_t bytes = 0;           // bytes of one row
  size_t element_bytes = 0;
};
using BatchMemory = std::vector<FieldMemory>;

/// One row of a micro-batch, into which one sample is written.
class SampleRow {
 public:
  SampleRow(const BatchMemory& memory, int64_t row) : memory_(memory), row_(row) {}

  /// Returns the values of field number `field` of the layout. T must be as large as the field's element type.
  template <class T>
  T* values(size_t field) const {
    GPUTRAIN_ASSERT(sizeof(T) == memory_[field].element_bytes, "a field is written as another type than it has");
    return reinterpret_cast<T*>(bytes(field));
  }

  std::byte* bytes(size_t field) const noexcept {
    return memory_[field].values + static_cast<size_t>(row_) * memory_[field].bytes;
  }

  /// Sets the number of entries written into a ragged field.
  void set_count(size_t field, int64_t count) const { memory_[field].counts[row_] = count; }
  int64_t count(size_t field) const { return memory_[field].counts[row_]; }

 private:
  const BatchMemory& memory_;
  int64_t row_;
};

}  // namespace gputrain::data

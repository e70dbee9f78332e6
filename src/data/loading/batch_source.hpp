// Micro-batches in order, read on demand or ahead by worker threads; both give the same batches.
#pragma once

#include <cstdint>
#include <memory>

#include "batch_buffers.hpp"
#include "row_reader.hpp"

namespace gputrain::data {

struct FilledBatch {
  BatchBuffers buffers;  // has most_rows() rows; the first plan.rows are filled
  ReadOutcome outcome;
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// Returns the next micro-batch. Throws the error of its first row that could not be read, also when repeated.
  virtual FilledBatch next() = 0;

  /// Returns whether next() timed out. Workers that are stuck in storage then still use this object: do not destroy it.
  virtual bool has_given_up() const { return false; }
};

struct ReadAhead {
  int workers = 0;          // threads; 0: the caller and torch's compute threads read on demand
  int64_t slots = 2;        // micro-batches that are ready or being read
  int64_t end = INT64_MAX;  // first micro-batch that is not read
  double timeout_seconds = 600;
  bool pinned = false;
};

/// Makes a source that `reader` must outlive.
std::unique_ptr<BatchSource> make_batch_source(const RowReader& reader, const ReadAhead& options);

}  // namespace gputrain::data

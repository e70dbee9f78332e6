// Micro-batches in order, read here and now or ahead by worker threads; both give the same.
#pragma once

#include <cstdint>
#include <memory>

#include "batch_buffers.hpp"
#include "row_reader.hpp"

namespace gputrain::data {

struct FilledBatch {
  BatchBuffers buffers;  // of the plan's most_rows(); the first plan.rows are filled
  ReadOutcome outcome;
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// The next micro-batch; throws the error of its first row that could not be read, and again when called again.
  virtual FilledBatch next() = 0;

  /// Whether next() has waited in vain: threads that storage does not let go use this for ever, and nobody may destroy
  /// it.
  virtual bool has_given_up() const { return false; }
};

struct ReadAhead {
  int workers = 0;          // 0: read by the caller and torch's compute threads, nothing ahead
  int64_t slots = 2;        // micro-batches ready or in work
  int64_t first = 0;        // the first micro-batch
  int64_t end = INT64_MAX;  // nothing is read from here on
  double timeout_seconds = 600;
  bool pinned = false;
};

/// `reader` must outlive the source.
std::unique_ptr<BatchSource> make_batch_source(const RowReader& reader, const ReadAhead& options);

}  // namespace gputrain::data

// Reads rows of a micro-batch into its buffer: what a worker thread does.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/usage.hpp"
#include "step_plan.hpp"

namespace gputrain::data {

/// What came of reading some rows; the outcomes of a micro-batch's parts add up in any order.
struct ReadOutcome {
  struct BadRow {
    int64_t row;
    BadSample sample;
  };

  int64_t weight = 0;
  Usage usage;  // of the rows that count, bad ones included: their position is used up
  std::vector<BadRow> bad;
  std::exception_ptr error;  // of the lowest row that failed
  int64_t error_row = 0;

  void add(ReadOutcome other);
};

class RowReader {
 public:
  RowReader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);

  const StepPlan& plan() const noexcept { return plan_; }
  const Dataset& dataset() const noexcept { return *dataset_; }

  /// Reads rows [begin, end) of micro-batch `index`; an error ends up in the outcome. Leaves early once `stop` is set.
  ReadOutcome read(int64_t index, int64_t begin, int64_t end, const BatchMemory& to,
                   const std::atomic<bool>& stop) const noexcept;

 private:
  void read_counted(int64_t sample, const ReadContext& context, const SampleRow& to, int64_t row,
                    ReadOutcome& outcome) const;
  void fill_uncounted(int64_t sample, const ReadContext& context, const SampleRow& to) const noexcept;
  void read_sample(int64_t sample, const ReadContext& context, const SampleRow& to) const;
  int64_t weight_of(const SampleRow& row) const;
  void clear(size_t field, const SampleRow& row, int64_t first = 0) const noexcept;

  std::shared_ptr<const Dataset> dataset_;
  StepPlan plan_;
  int64_t samples_;
  struct FieldFacts {
    std::vector<std::byte> fill;  // one element
    int64_t most;                 // entries of a row along the first dimension, if it is ragged; else 1
    int64_t entry;                // elements in one of them
    bool ragged, target;
  };
  std::vector<FieldFacts> fields_;
  std::optional<size_t> weighed_;  // the field whose entries are counted; nothing: a sample counts as 1
  uint64_t seed_;
  bool shuffle_, augment_, tolerant_;
};

}  // namespace gputrain::data

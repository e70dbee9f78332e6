// Reads rows of a micro-batch into its buffer: what a worker thread does.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/usage.hpp"
#include "step_plan.hpp"

namespace gputrain::data {

/// Where a micro-batch goes: row i at inputs + i * layout.input_bytes() and targets + i * layout.target_count().
struct Destination {
  std::byte* inputs = nullptr;
  int64_t* targets = nullptr;
};

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
  Destination row(const Destination& batch, int64_t row) const noexcept;

  /// Reads rows [begin, end) of micro-batch `index`; an error ends up in the outcome. Leaves early once `stop` is set.
  ReadOutcome read(int64_t index, int64_t begin, int64_t end, const Destination& to,
                   const std::atomic<bool>& stop) const noexcept;

 private:
  void read_counted(int64_t sample, const ReadContext& context, const Destination& to, int64_t row,
                    ReadOutcome& outcome) const;
  void fill_uncounted(int64_t sample, const ReadContext& context, const Destination& to) const noexcept;
  void clear(const Destination& to) const noexcept;

  std::shared_ptr<const Dataset> dataset_;
  StepPlan plan_;
  int64_t samples_;
  size_t input_bytes_, target_count_;
  uint64_t seed_;
  bool shuffle_, augment_, tolerant_;
};

}  // namespace gputrain::data

// Reader of rows of a micro-batch into its buffers: the work of a worker thread.
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
#include "gputrain/data/order.hpp"
#include "gputrain/data/sample_usage.hpp"
#include "mix_rows.hpp"
#include "step_plan.hpp"

namespace gputrain::data {

/// The result of reading some rows; results of parts of a micro-batch can be added in any order.
struct ReadOutcome {
  struct BadRow {
    int64_t row;
    BadSample sample;
  };

  int64_t weight = 0;
  SampleUsage usage;  // usage of the rows that count, including bad ones: their positions are used
  std::vector<BadRow> bad;
  std::exception_ptr error;  // error of the lowest row that failed
  int64_t error_row = 0;

  void add(ReadOutcome other);
};

class RowReader {
 public:
  RowReader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options, Position from = {});

  const StepPlan& plan() const noexcept { return plan_; }
  const Dataset& dataset() const noexcept { return *dataset_; }

  /// Reads rows [begin, end) of micro-batch `index`; returns an error in the outcome. Stops early once `stop` is set.
  ReadOutcome read(int64_t index, int64_t begin, int64_t end, const BatchMemory& to,
                   const std::atomic<bool>& stop) const noexcept;

  /// Returns whether images are mixed. If so, call complete() once when all rows of a micro-batch are read.
  bool mixes() const noexcept { return mix_.is_on(); }
  void complete(int64_t index, const BatchMemory& to) const noexcept;
  /// Returns how complete() mixes the counted rows of micro-batch `index`, from seed, epoch and its first position.
  Mixing mixing_of(int64_t index) const noexcept;
  /// Returns the length of the longest sample of micro-batch `index`, on all ranks, in fields of this pass: the same on
  /// every rank. 0: the dataset does not know lengths.
  int64_t longest_on_all_ranks(int64_t index, int pass) const;
  /// Returns the field of the targets that are classes.
  size_t target_field() const { return weighed_.value(); }

 private:
  SampleOrder order_of(int64_t epoch) const noexcept;
  ReadContext context_of(int64_t copy, int64_t epoch) const noexcept;
  std::vector<int64_t> samples_by_length(int64_t index, const SampleOrder& order) const;
  void read_counted(int64_t sample, const ReadContext& context, const SampleRow& to, int64_t row,
                    ReadOutcome& outcome) const;
  void fill_uncounted(int64_t sample, const ReadContext& context, const SampleRow& to) const noexcept;
  void read_sample(int64_t sample, const ReadContext& context, const SampleRow& to) const;
  int64_t weight_of(const SampleRow& row) const;
  void clear(size_t field, const SampleRow& row, int64_t first = 0) const noexcept;

  std::shared_ptr<const Dataset> dataset_;
  StepPlan plan_;
  int64_t samples_;
  int64_t classes_;  // upper bound of targets; 0: they are not classes
  struct FieldFacts {
    std::vector<std::byte> fill;  // one element
    int64_t most;                 // for a ragged field, the maximum entries of a row; else 1
    int64_t entry;                // elements in one entry
    bool ragged, target;
  };
  std::vector<FieldFacts> fields_;
  std::optional<size_t> weighed_;  // the field whose targets are counted; empty: a sample counts as 1
  uint64_t seed_;
  int64_t repeats_;
  MixOptions mix_;  // off unless the samples are images with a class each
  bool shuffle_, augment_, tolerant_;
  bool by_length_;  // true: samples of a step are sorted by length
};

}  // namespace gputrain::data

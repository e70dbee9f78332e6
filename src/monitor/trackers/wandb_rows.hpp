// Records as rows of Weights & Biases.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/monitor/record.hpp"
#include "wandb_file.hpp"

namespace gputrain::monitor::wandb {

/// Returns whether a record has values for a row.
bool has_values(const Record& record);

/// Returns a text as JSON.
std::string json_of(const std::string& text);

/// Returns a row, or a summary, as an object on one line.
std::string line_of(const Values& values);

/// The newest row, which holds all records of its step, and the newest values of all.
class Rows {
 public:
  explicit Rows(int64_t start_seconds) : start_seconds_(start_seconds) {}

  /// Takes a row of an earlier attempt.
  void take(Row row);
  /// Adds to the row of the step, or begins it.
  void add(const Record& record);

  bool is_at(int64_t step) const { return has_row_ && row_.step == step; }
  bool has_row() const { return has_row_; }
  const Row& row() const { return row_; }
  const Values& summary() const { return summary_; }
  int64_t start_seconds() const { return start_seconds_; }
  void set_start(int64_t seconds) { start_seconds_ = seconds; }

 private:
  int64_t start_seconds_;
  bool has_row_ = false;
  Row row_;
  Values summary_;
};

}  // namespace gputrain::monitor::wandb

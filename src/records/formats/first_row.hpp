// Test of the first row of a table whose columns are given by number: it may name them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../read_all.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/data/options.hpp"

namespace gputrain::records {

/// Columns by number, if the job names columns by numbers alone.
struct NumberedColumns {
  std::string text;                  // empty: it is not named
  std::optional<std::string> label;  // a class or a number; of several columns, the first
  Target target = Target::label;
  std::vector<std::string> known_classes = {};
};
std::optional<NumberedColumns> numbered_columns(const data::ColumnNames& names, Target target);

/// Leaves out the first row of each file if it names the columns, and says so. If labels are numbers, that is a row
/// whose label is none. Else a row with a label of another row, or of a known class, stays; others are judged by looks:
/// cells of few words, one a usual name, or far shorter than the other texts. Warns of a doubtful row, which stays.
void leave_out_names(AllRecords& all, const NumberedColumns& columns);

}  // namespace gputrain::records

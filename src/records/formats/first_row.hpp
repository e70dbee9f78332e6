// Tables whose columns are given by number: whether the first row names them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gputrain/data/batch.hpp"
#include "gputrain/data/options.hpp"
#include "../read_all.hpp"

namespace gputrain::records {

/// Columns by number, where all that the job names are numbers.
struct NumberedColumns {
  std::string text;                  // empty: it is not named
  std::optional<std::string> label;  // a class or a number; of several columns, the first
  Target target = Target::label;
  std::vector<std::string> known_classes = {};
};
std::optional<NumberedColumns> numbered_columns(const data::ColumnNames& names, Target target);

/// Leaves out the first row of each file if it names the columns, and says so. It does not if its label is that of
/// another row, or a known class; else by its looks: cells of few words, one of them a usual name of a column, or far
/// shorter than the other texts. Warns of a row in doubt, which stays.
void leave_out_names(AllRecords& all, const NumberedColumns& columns);

}  // namespace gputrain::records

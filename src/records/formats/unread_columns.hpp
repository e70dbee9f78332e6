// Columns of records that are not used.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../read_all.hpp"

namespace gputrain::records {

struct UnreadColumns {
  std::map<std::string, int64_t> records;  // number of records that have the column, by its name
  int64_t of = 0;

  /// Returns "id, source (12 of 32)": the columns, with the number of records that have one, if not all do.
  std::string line() const;
  /// Warns of columns with names that mean something to other programs: system, history, weight.
  void warn(const std::string& where) const;
};

/// Finds the columns with a value that nobody reads, in records that can be read. `columns_of` returns those of a
/// record that are read.
UnreadColumns unread_columns(
    const AllRecords& all,
    const std::function<std::vector<std::string>(const nlohmann::ordered_json& record)>& columns_of);

}  // namespace gputrain::records

// Rows of a Parquet file as JSON. A library of its own, libgputrain_parquet.so, reads them with Arrow. It is opened
// with the first file, for Arrow takes longer to load than short commands run, and not every build has it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gputrain::records {

struct ParquetRow {
  nlohmann::ordered_json value;  // object with the chosen columns that the file has
  std::string problem;           // empty: it can be read
};

struct ParquetRows {
  std::vector<ParquetRow> rows;
  int64_t text_bytes = 0;  // bytes of all their strings
};

/// Reader of one file, from its first row to its last. Throws std::runtime_error only: Arrow's own types stay inside.
class ParquetReader {
 public:
  ParquetReader() = default;
  virtual ~ParquetReader() = default;
  ParquetReader(const ParquetReader&) = delete;
  ParquetReader& operator=(const ParquetReader&) = delete;

  /// Returns the names of all columns.
  virtual std::vector<std::string> columns() const = 0;
  /// Reads only these columns of the file. Call it before next().
  virtual void choose(const std::vector<std::string>& columns) = 0;
  /// Returns some more rows; none at the end.
  virtual ParquetRows next() = 0;
};

/// Export of the library, gputrain_parquet.
struct ParquetLibrary {
  std::unique_ptr<ParquetReader> (*open)(const std::string& path);
};

}  // namespace gputrain::records

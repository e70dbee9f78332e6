// The rows of a Parquet file as JSON. A library of its own, libgputrain_parquet.so, reads them with Arrow. It is opened
// with the first file, for Arrow takes longer to load than short commands run, and not every build has it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gputrain::records {

struct ParquetRow {
  nlohmann::ordered_json value;  // an object with the chosen columns that the file has
  std::string problem;           // empty: it can be read
};

struct ParquetRows {
  std::vector<ParquetRow> rows;
  int64_t text_bytes = 0;  // in all their strings
};

/// One file, from its first row to its last. What it throws is a std::runtime_error: Arrow's own types stay inside.
class ParquetReader {
 public:
  ParquetReader() = default;
  virtual ~ParquetReader() = default;
  ParquetReader(const ParquetReader&) = delete;
  ParquetReader& operator=(const ParquetReader&) = delete;

  /// The names of all columns.
  virtual std::vector<std::string> columns() const = 0;
  /// Reads only these columns of the file. Call it before next().
  virtual void choose(const std::vector<std::string>& columns) = 0;
  /// Some more rows; none at the end.
  virtual ParquetRows next() = 0;
};

/// What the library exports as gputrain_parquet.
struct ParquetLibrary {
  std::unique_ptr<ParquetReader> (*open)(const std::string& path);
};

}  // namespace gputrain::records

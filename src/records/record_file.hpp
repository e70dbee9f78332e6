// Files of records: JSON lines, tables, Parquet. A record is a JSON object with a value for each column.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gputrain::records {

/// One record, or why it cannot be read.
struct Record {
  nlohmann::ordered_json value;
  std::string place;    // "train.jsonl:12", "train.parquet row 12"
  std::string problem;  // empty: it can be read
};

/// What to read of a file.
struct RecordFile {
  std::string path;
  std::vector<std::string> columns;  // what is made of them; a reader may leave out others
  /// The columns of a table are called "0", "1" and so on, and its first row is a record like the others.
  bool are_numbers = false;
  std::vector<std::string>* left_out = nullptr;  // gets the columns that the reader leaves out
};

/// Reads the records of one file. Takes the bytes of its text from `bytes_left`, and throws Error(data) if they do not
/// suffice.
using ReadRecords = std::vector<Record> (*)(const RecordFile& file, int64_t& bytes_left);

/// A record per line, without empty lines. A line that is no JSON object is a record with a problem. Throws Error(data)
/// if the text is no JSON lines at all: it is another kind of file, or one JSON document.
std::vector<Record> records_of_json_lines(const std::string& text, const std::string& path);

/// A record per row of a table as RFC 4180 describes it: quotes, doubled quotes and line breaks within quotes. The
/// first row names the columns, unless they are numbers. A row with another number of cells is a record with a problem.
/// Throws Error(data) if the first row does not name columns, or if a quote is never closed.
std::vector<Record> records_of_table(const std::string& text, const RecordFile& file, char separator);

/// A record per sentence of a CoNLL file: a list of words under the first of the columns, and of tags, in the last
/// place of each line, under the second. With one column, of words alone, which may then stand alone in their lines.
/// Else a sentence with a line of one cell is a record with a problem.
std::vector<Record> records_of_conll(const RecordFile& file, int64_t& bytes_left);
/// The same of the text of such a file. Throws Error(data) if it is another kind of file.
std::vector<Record> records_of_conll_lines(const std::string& text, const RecordFile& file);

/// A record per row of a Parquet file, with the columns that are wanted. A row with text that is not UTF-8 is a record
/// with a problem. Throws Error(data) if the file is no Parquet file, cut off or broken, or has none of the columns;
/// Error(environment) if this build reads no Parquet files.
std::vector<Record> records_of_parquet(const RecordFile& file, int64_t& bytes_left);

}  // namespace gputrain::records

// Files of records: JSON lines, tables, Parquet. A record is a JSON object with a value for each column.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace gputrain::datasets {
class TextWindow;
}

namespace gputrain::records {

/// One record, or its problem.
struct Record {
  nlohmann::ordered_json value;
  std::string place;    // "train.jsonl:12", "train.parquet row 12"
  std::string problem;  // empty: it can be read
};

/// Request to read a file.
struct RecordFile {
  std::string path;
  std::vector<std::string> columns;  // columns in use; a reader may leave out others
  /// True: the columns of a table are called "0", "1" and so on, and its first row is a record like the others.
  bool are_numbers = false;
  std::vector<std::string>* left_out = nullptr;  // list of columns that the reader leaves out
  bool keeps_bytes = false;  // true: keep what is not UTF-8, such as images in Parquet files, as binary values
};

/// Function that reads the records of one file. Subtracts the bytes of its text from `bytes_left`, and throws
/// Error(data) if they do not suffice.
using ReadRecords = std::vector<Record> (*)(const RecordFile& file, int64_t& bytes_left);

/// A format of files of records.
struct RecordFormat {
  std::string name;                  // name in jobs: "jsonl"
  std::vector<std::string> endings;  // endings of its files: ".jsonl"; .gz or .zst may follow
  ReadRecords read;
};
const std::vector<RecordFormat>& record_formats();
const RecordFormat& format_named(const std::string& name);
/// Returns the format that the name of a file says; null: none of these.
const RecordFormat* format_of_file(const std::string& path);

using TakeRecords = std::function<void(std::vector<Record>)>;

/// Reads a JSON object in each line, or a list of objects, and hands over some at a time. A line or an element that is
/// no JSON object is a record with a problem. Throws Error(data) if the text is another kind of file, or one object.
void read_json(datasets::TextWindow& text, const TakeRecords& take);
/// Reads all of them. Throws Error(data) also if none is an object.
std::vector<Record> records_of_json(datasets::TextWindow& text, const RecordFile& file);
/// Returns whether a text begins with records that read_json() reads: two lines with an object each, or one if that is
/// all, or a list of objects.
bool is_json_records(std::string_view begin, bool is_whole);

/// Reads a record from each row of a table as RFC 4180 describes it: quotes, doubled quotes and line breaks within
/// quotes. Commas separate the cells, or semicolons or tabs if these explain the first rows better. The first row names
/// the columns, unless they are numbers; columns without a name are left out. A row with another number of cells is a
/// record with a problem. Throws Error(data) if the first row names no columns, or a wanted one twice, or if a quote is
/// never closed.
std::vector<Record> records_of_csv(datasets::TextWindow& text, const RecordFile& file);
/// Reads the same with tabs and without quotes: a quotation mark is a letter. Warns of cells that seem quoted.
std::vector<Record> records_of_tsv(datasets::TextWindow& text, const RecordFile& file);

/// Reads a record from each sentence of a CoNLL file: a list of words under the first of the columns, and of tags, in
/// the last place of each line, under the second. One column means words alone, which may then stand alone in their
/// lines. Else a sentence with a line of one cell is a record with a problem. Throws Error(data) if it is another kind
/// of file.
std::vector<Record> records_of_conll(datasets::TextWindow& text, const RecordFile& file);

/// Returns whether a text begins as a CoNLL file: lines of as many cells each, whose last ones are tags, in sentences;
/// or with a line -DOCSTART-.
bool is_conll(std::string_view begin, bool is_whole);
/// Returns whether the file at this path does, whose name says nothing. Throws Error(data) if it cannot be read.
bool is_conll_file(const std::string& path);

/// Reads a record per row of a Parquet file, with the columns that are wanted. A row with text that is not UTF-8 is a
/// record with a problem. Throws Error(data) if the file is no Parquet file, cut off or broken, or has none of the
/// columns; Error(environment) if this build reads no Parquet files.
std::vector<Record> records_of_parquet(const RecordFile& file, int64_t& bytes_left);

}  // namespace gputrain::records

#include <string_view>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "record_file.hpp"

namespace gputrain::records {
namespace {

/// Walks over a table, row by row (RFC 4180).
class TableReader {
 public:
  TableReader(std::string_view text, const std::string& path, char separator)
      : text_(text), path_(path), separator_(separator) {}

  /// The cells of the next row; false at the end. Skips empty lines.
  bool next(std::vector<std::string>& cells) {
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) step();
    if (at_ == text_.size()) return false;
    row_line_ = line_;
    cells.clear();
    do {
      cells.push_back(cell());
    } while (at_ < text_.size() && text_[at_] == separator_ && ++at_ <= text_.size());
    return true;
  }

  std::string place() const { return path_ + ":" + std::to_string(row_line_); }

 private:
  void step() {
    if (text_[at_++] == '\n') ++line_;
  }

  std::string cell() {
    std::string content;
    if (at_ < text_.size() && text_[at_] == '"') quoted(content);
    // Text behind a closing quote belongs to the cell, as in other readers.
    while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n' && text_[at_] != '\r')
      content += text_[at_++];
    return content;
  }

  void quoted(std::string& content) {
    const int64_t begin = line_;
    ++at_;
    while (at_ < text_.size()) {
      if (text_[at_] == '"') {
        ++at_;
        if (at_ == text_.size() || text_[at_] != '"') return;
      }
      content += text_[at_];
      step();
    }
    throw Error(ExitCode::data, {.what = "a quote is opened and never closed",
                                 .where = path_ + ":" + std::to_string(begin),
                                 .hint = "a quote within a quoted cell is written twice"});
  }

  std::string_view text_;
  const std::string& path_;
  char separator_;
  size_t at_ = 0;
  int64_t line_ = 1, row_line_ = 1;
};

void check_columns(const std::vector<std::string>& columns, const std::string& path) {
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].empty())
      throw Error(ExitCode::data, {.what = "column " + std::to_string(i + 1) + " has no name in the first row",
                                   .where = path,
                                   .hint = "the first row names the columns: prompt,completion"});
    for (size_t j = 0; j < i; ++j) {
      if (columns[i] == columns[j])
        throw Error(ExitCode::data,
                    {.what = "two columns are named '" + printable(columns[i].substr(0, 100)) + "'", .where = path});
    }
  }
}

}  // namespace

std::vector<Record> records_of_table(const std::string& text, const RecordFile& file, char separator) {
  const std::string& path = file.path;
  const FileKind kind = file_kind(text);
  if (kind.type != FileType::unknown && kind.type != FileType::text)
    throw Error(ExitCode::data,
                {.what = std::string(kind.name) + ", not a table", .where = path, .hint = std::string(kind.remedy)});
  TableReader reader(text, path, separator);
  std::vector<std::string> columns, cells;
  if (!reader.next(columns)) throw Error(ExitCode::data, {.what = "the file is empty", .where = path});
  std::vector<Record> records;
  const auto add = [&] {
    Record record{.value = nlohmann::ordered_json::object(), .place = reader.place(), .problem = {}};
    if (cells.size() == columns.size()) {
      for (size_t i = 0; i < columns.size(); ++i) record.value[columns[i]] = std::move(cells[i]);
    } else {
      record.problem = "the row has " + counted(std::ssize(cells), "cell") + ", but the first row " +
                       (file.are_numbers ? "has " : "names ") + counted(std::ssize(columns), "column");
    }
    records.push_back(std::move(record));
  };
  if (file.are_numbers) {
    cells = columns;
    for (size_t i = 0; i < columns.size(); ++i) columns[i] = std::to_string(i);
    add();
  } else {
    check_columns(columns, path);
  }
  while (reader.next(cells)) add();
  if (records.empty()) throw Error(ExitCode::data, {.what = "the table has no row but the names", .where = path});
  return records;
}

}  // namespace gputrain::records

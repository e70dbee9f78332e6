#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "record_file.hpp"

namespace gputrain::records {
namespace {

using datasets::TextWindow;
using Cells = std::vector<std::string>;
using Pairs = std::vector<nlohmann::ordered_json::object_t::value_type>;  // elements of an ordered object

/// Format of a table: its separator, and whether cells may be quoted.
struct TableStyle {
  char separator = ',';
  bool has_quotes = true;  // true: RFC 4180; false: a quotation mark is a letter
};

/// Reader of a table, row by row.
class TableReader {
 public:
  TableReader(TextWindow& text, TableStyle style) : text_(text), style_(style) {}

  /// Reads the next row that is not empty; returns false at the end.
  bool next() {
    while (true) {
      const size_t begin = std::min(text_.text().find_first_not_of("\r\n"), text_.text().size());
      text_.consume(begin);
      if (text_.text().empty() && !text_.has_more()) return false;
      if (!text_.text().empty() && read_row()) break;
      text_.grow();
    }
    row_line_ = text_.line();
    text_.consume(at_);
    return true;
  }

  Cells& cells() noexcept { return cells_; }
  const std::string& problem() const noexcept { return problem_; }
  std::string place() const { return text_.path() + ":" + std::to_string(row_line_); }

 private:
  /// Reads the row with which the text begins, up to at_; returns false if its end is not in memory.
  bool read_row() {
    cells_.clear();
    problem_.clear();
    at_ = 0;
    quoted_lines_ = 0;
    const std::string_view all = text_.text();
    while (true) {
      cells_.emplace_back();
      if (style_.has_quotes && at_ < all.size() && all[at_] == '"' && !read_quoted(all)) return false;
      // Text behind a closing quote belongs to the cell, as in other readers.
      size_t end = at_;
      while (end < all.size() && all[end] != style_.separator && all[end] != '\n' && all[end] != '\r') ++end;
      if (end > at_ && quoted_lines_ > 0)
        problem_ = "text behind a closing quote whose cell spans " + counted(quoted_lines_ + 1, "line") +
                   ": a quote within a quoted cell is written twice";
      quoted_lines_ = 0;
      cells_.back() += all.substr(at_, end - at_);
      at_ = end;
      if (at_ == all.size()) return !text_.has_more();
      if (all[at_] != style_.separator) return true;
      ++at_;
    }
  }

  bool read_quoted(std::string_view all) {
    for (++at_; at_ < all.size(); ++at_) {
      if (all[at_] == '"') {
        if (at_ + 1 == all.size() && text_.has_more()) return false;
        if (at_ + 1 == all.size() || all[at_ + 1] != '"') {
          ++at_;
          return true;
        }
        ++at_;
      }
      quoted_lines_ += all[at_] == '\n' ? 1 : 0;
      cells_.back() += all[at_];
    }
    if (text_.has_more()) return false;
    const auto before = std::ranges::count(all, '\n') - quoted_lines_;
    throw Error(ExitCode::data, {.what = "a quote is opened and never closed",
                                 .where = text_.path() + ":" + std::to_string(text_.line() + before),
                                 .hint = "a quote within a quoted cell is written twice"});
  }

  TextWindow& text_;
  TableStyle style_;
  Cells cells_;
  std::string problem_;
  size_t at_ = 0;
  int64_t quoted_lines_ = 0, row_line_ = 0;
};

bool is_wanted(const std::string& column, const RecordFile& file) {
  return std::ranges::find(file.columns, column) != file.columns.end();
}

/// Rates a separator by the first rows: the wanted columns that it finds, and whether all rows have as many cells.
std::pair<int64_t, bool> fit_of(const std::string& begin, bool is_cut, const RecordFile& file, char separator) {
  constexpr size_t kRows = 20;
  std::vector<Cells> rows;
  try {
    TextWindow text(begin, file.path);
    TableReader reader(text, {.separator = separator});
    while (rows.size() < kRows && reader.next()) rows.push_back(reader.cells());
  } catch (const Error&) {
    // A quote that is not closed in these lines may be in the next ones.
  }
  if (is_cut && rows.size() > 1 && rows.size() < kRows) rows.pop_back();
  if (rows.empty() || rows[0].size() < 2) return {0, false};
  int64_t found = 0;
  for (size_t i = 0; i < rows[0].size(); ++i)
    found += is_wanted(file.are_numbers ? std::to_string(i) : rows[0][i], file) ? 1 : 0;
  return {found, std::ranges::all_of(rows, [&](const Cells& row) { return row.size() == rows[0].size(); })};
}

/// Finds the separator. Spreadsheets write semicolons where a comma is part of numbers.
char separator_of(const TextWindow& text, const RecordFile& file) {
  constexpr size_t kMost = size_t{64} << 10;
  const std::string begin(text.text().substr(0, kMost));
  const bool is_cut = begin.size() < text.text().size() || text.has_more();
  char best = ',';
  std::string found;
  auto fit = fit_of(begin, is_cut, file, best);
  for (const auto& [separator, name] : {std::pair{';', "semicolons"}, std::pair{'\t', "tabs"}}) {
    const auto other = fit_of(begin, is_cut, file, separator);
    if (other <= fit) continue;
    fit = other;
    best = separator;
    found = name;
  }
  if (!found.empty()) log::warning(file.path + ": " + found + " separate its cells, not commas");
  return best;
}

bool is_in_quotes(std::string_view cell) { return cell.size() > 1 && cell.starts_with('"') && cell.ends_with('"'); }

std::string_view without_blanks(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

/// Checks that the columns that are read have names, each one of its own; others need none.
void check_columns(Cells& columns, const RecordFile& file, TableStyle style) {
  if (!style.has_quotes && std::ranges::all_of(columns, is_in_quotes))
    throw Error(ExitCode::data, {.what = "the names of the columns are in quotation marks, which are letters in tsv",
                                 .where = file.path,
                                 .hint = "format: csv reads this file: it finds the tabs, and takes the marks off"});
  for (std::string& column : columns) column = without_blanks(column);
  for (const std::string& wanted : file.columns) {
    if (std::ranges::count(columns, wanted) > 1)
      throw Error(ExitCode::data,
                  {.what = "two columns are named '" + printable(wanted.substr(0, 100)) + "'", .where = file.path});
  }
  if (std::ranges::all_of(columns, &std::string::empty))
    throw Error(ExitCode::data, {.what = "no column has a name in the first row", .where = file.path});
}

/// Cells that were quoted by a program for which quotation marks are more than letters.
struct QuotedCells {
  int64_t count = 0;
  std::string first;

  void add(const TableReader& reader, const Cells& cells) {
    const auto is_quoted = [](const std::string& cell) {
      if (!is_in_quotes(cell)) return false;
      const std::string inside = cell.substr(1, cell.size() - 2);
      size_t marks = 0, pairs = 0;
      for (size_t i = 0; i < inside.size(); ++i) {
        if (inside[i] != '"') continue;
        ++marks;
        if (i + 1 < inside.size() && inside[i + 1] == '"') ++pairs, ++marks, ++i;
      }
      return marks > 0 && marks == 2 * pairs;
    };
    if (std::ranges::none_of(cells, is_quoted)) return;
    if (count++ == 0) first = reader.place();
  }

  void warn() const {
    if (count == 0) return;
    log::warning(first + (count == 1 ? "" : " and " + counted(count - 1, "more row")) +
                 ": cells in quotation marks with doubled ones inside, which tsv takes as they are; format: csv finds "
                 "the tabs, and reads such cells as they were meant");
  }
};

/// Empties repeated names of columns: each name stands for its first column.
void drop_doubles(Cells& columns) {
  std::set<std::string_view> seen;
  for (std::string& column : columns)
    if (!seen.insert(column).second) column.clear();
}

/// Makes a record. Appends, because to look for the name in thousands of columns takes longer than to read the row.
Record record_of(TableReader& reader, const Cells& columns, const RecordFile& file) {
  Record record{.value = nlohmann::ordered_json::object(), .place = reader.place(), .problem = reader.problem()};
  Cells& cells = reader.cells();
  if (cells.size() != columns.size()) {
    record.problem = "the row has " + counted(std::ssize(cells), "cell") + ", but the first row " +
                     (file.are_numbers ? "has " : "names ") + counted(std::ssize(columns), "column");
    const bool has_mark = std::ranges::any_of(cells, [](const std::string& cell) { return cell.starts_with('"'); });
    if (has_mark && cells.size() < columns.size())
      record.problem += "; a line break within quotation marks is read in format: csv alone";
    return record;
  }
  auto& pairs = record.value.get_ref<nlohmann::ordered_json::object_t&>();
  for (size_t i = 0; i < cells.size(); ++i)
    if (!columns[i].empty()) static_cast<Pairs&>(pairs).emplace_back(columns[i], std::move(cells[i]));
  return record;
}

std::vector<Record> records_of_style(TextWindow& text, const RecordFile& file, TableStyle style) {
  TableReader reader(text, style);
  if (!reader.next()) throw Error(ExitCode::data, {.what = "the file is empty", .where = file.path});
  Cells columns = reader.cells();
  std::vector<Record> records;
  QuotedCells quoted;
  if (file.are_numbers) {
    for (size_t i = 0; i < columns.size(); ++i) columns[i] = std::to_string(i);
    records.push_back(record_of(reader, columns, file));
  } else {
    check_columns(columns, file, style);
    drop_doubles(columns);
  }
  while (reader.next()) {
    if (!style.has_quotes) quoted.add(reader, reader.cells());
    records.push_back(record_of(reader, columns, file));
  }
  quoted.warn();
  if (records.empty()) throw Error(ExitCode::data, {.what = "the table has no row but the names", .where = file.path});
  return records;
}

/// Removes the first line in which spreadsheets declare the separator: `sep=;`, perhaps in quotation marks, and with
/// more separators behind it.
std::optional<char> told_separator(TextWindow& text) {
  constexpr std::string_view kTold = "sep=";
  std::string_view line = text.text().substr(0, text.text().find_first_of("\r\n"));
  const size_t size = line.size();
  if (line.starts_with('"')) line = line.substr(1, line.find('"', 1) - 1);
  const auto is_like = [](char a, char b) { return a == b || a == b - 'a' + 'A'; };
  if (line.size() <= kTold.size() || !std::ranges::equal(line.substr(0, kTold.size()), kTold, is_like))
    return std::nullopt;
  const char separator = line[kTold.size()];
  if (line.find_first_not_of(separator, kTold.size()) != line.npos) return std::nullopt;
  text.consume(size);
  return separator;
}

void check_is_table(const TextWindow& text) {
  const FileKind kind = file_kind(text.text());
  if (kind.type != FileType::unknown && kind.type != FileType::text)
    throw Error(
        ExitCode::data,
        {.what = std::string(kind.name) + ", not a table", .where = text.path(), .hint = std::string(kind.remedy)});
  const std::string_view line = text.text().substr(0, text.text().find('\n'));
  if (line.starts_with('{') && nlohmann::json::accept(line))
    throw Error(ExitCode::data,
                {.what = "a JSON object in each line, not a table", .where = text.path(), .hint = "format: jsonl"});
}

}  // namespace

std::vector<Record> records_of_csv(TextWindow& text, const RecordFile& file) {
  check_is_table(text);
  if (const auto told = told_separator(text)) return records_of_style(text, file, {.separator = *told});
  return records_of_style(text, file, {.separator = separator_of(text, file)});
}

std::vector<Record> records_of_tsv(TextWindow& text, const RecordFile& file) {
  check_is_table(text);
  if (told_separator(text).value_or('\t') != '\t')
    throw Error(
        ExitCode::data,
        {.what = "its first line says that tabs do not separate its cells", .where = file.path, .hint = "format: csv"});
  return records_of_style(text, file, {.separator = '\t', .has_quotes = false});
}

}  // namespace gputrain::records

// Table of metrics (metrics.csv): a row per record with metrics, a column per metric.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "../append_line.hpp"
#include "../read_whole.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/monitor/archive_lines.hpp"
#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {
namespace {

const std::vector<std::string> kFirstColumns{"time", "step", "epoch", "kind"};

/// Splits a line at commas: our cells have no comma, quote or line break.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',')
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += (&cell == cells.data() ? "" : ",") + cell;
  return line + "\n";
}

/// Turns a metric's name into a cell.
std::string column_of(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return c == ',' || c == '"' || c == '\n' || c == '\r'; }, '_');
  return name;
}

/// Writes a number as pandas and Python read it: "nan", "inf" and "-inf".
std::string cell_of(double value) { return fmt::format("{}", value); }

class CsvSink final : public Sink {
 public:
  CsvSink(const config::NoOptions&, const SinkRequest& request) : path_(request.folder / "metrics.csv") {}

  bool is_slow() const override { return true; }

  void log(const Record& record) override {
    if (record.metrics.empty()) return;
    const auto known = columns_.size();
    std::vector<std::string> cells{cell_of(seconds_since_epoch()), std::to_string(record.step), cell_of(record.epoch),
                                   record.kind};
    for (const auto& [name, value] : record.metrics) {
      const auto at = static_cast<size_t>(std::ranges::find(columns_, column_of(name)) - columns_.begin());
      if (at == columns_.size()) columns_.push_back(column_of(name));
      cells.resize(std::max(cells.size(), at + 1));
      cells[at] = cell_of(value);
    }
    cells.resize(columns_.size());
    if (columns_.size() > known && !widen()) columns_.resize(known), cells.resize(known);
    if (!append_line(path_, line_of(cells), /*sync=*/false)) warn();
  }

  /// Moves removed and incomplete rows to `<path>.left`.
  void truncate(int64_t step, int64_t evaluated_step) override {
    std::string first;
    std::getline(std::ifstream(path_), first);
    columns_ = cells_of(first);
    const bool is_ours = columns_.size() >= kFirstColumns.size() &&
                         std::equal(kFirstColumns.begin(), kFirstColumns.end(), columns_.begin());
    bool is_head = is_ours;
    archive_lines(path_, [&](const std::string& line) {
      return std::exchange(is_head, false) || (is_ours && is_history(cells_of(line), step, evaluated_step));
    });
    if (is_ours) return;
    columns_ = kFirstColumns;
    write_file_atomically(path_, line_of(columns_), ExitCode::environment);
  }

  void close() override {}

 private:
  bool is_history(const std::vector<std::string>& cells, int64_t step, int64_t evaluated_step) const {
    if (cells.size() != columns_.size()) return false;
    int64_t at = 0;
    const auto [end, failure] = std::from_chars(cells[1].data(), cells[1].data() + cells[1].size(), at);
    if (failure != std::errc() || end != cells[1].data() + cells[1].size()) return false;
    bool is_of_val = false;
    for (size_t i = 0; i < cells.size(); ++i) is_of_val |= columns_[i].starts_with("val/") && !cells[i].empty();
    return at <= (is_of_val ? std::min(step, evaluated_step) : step);
  }

  /// Rewrites the file with the columns that a record has for the first time.
  bool widen() {
    const std::string before = read_whole(path_);
    std::string content = line_of(columns_);
    for (size_t begin = before.find('\n') + 1, end; (end = before.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      auto cells = cells_of(std::string_view(before).substr(begin, end - begin));
      cells.resize(columns_.size());
      content += line_of(cells);
    }
    try {
      write_file_atomically(path_, content, ExitCode::environment);
      return true;
    } catch (const Error&) {
      warn();
      return false;
    }
  }

  /// Warns once; later rows are tried again, because there may be room again.
  void warn() {
    if (!std::exchange(has_failed_, true))
      log::warning(path_.string() + ": cannot be written; training continues, but metrics.csv lacks rows");
  }

  std::filesystem::path path_;
  std::vector<std::string> columns_;
  bool has_failed_ = false;
};

const config::Registered<CsvSink, config::NoOptions> registered_csv{
    sinks(), "csv", "metrics.csv in the run folder, a row per log line and evaluation"};

}  // namespace
}  // namespace gputrain::monitor

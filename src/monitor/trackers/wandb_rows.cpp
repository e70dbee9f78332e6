#include "wandb_rows.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "../append_line.hpp"
#include "gputrain/core/atomic_file.hpp"

namespace gputrain::monitor::wandb {
namespace {

std::string json_of(double value) {
  if (std::isnan(value)) return "NaN";  // spelling of Python
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return nlohmann::json(value).dump();
}

}  // namespace

bool has_values(const Record& record) { return !record.metrics.empty() || !record.texts.empty(); }

std::string json_of(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string line_of(const Values& values) {
  std::string line;
  for (const auto& [name, value] : values) line += (line.empty() ? "{" : ",") + json_of(name) + ":" + value;
  return line.empty() ? "{}" : line + "}";
}

void Rows::take(Row row) {
  row_ = std::move(row);
  has_row_ = true;
  for (const auto& [name, value] : row_.values) summary_[name] = value;
}

void Rows::add(const Record& record) {
  Row row = is_at(record.step) ? std::move(row_) : Row{.step = record.step};
  for (const auto& [name, value] : record.metrics) row.values[name] = json_of(value);
  for (const WrittenText& one : record.texts) row.values[one.name] = json_of(one.whole());
  const double now = seconds_since_epoch();
  row.values["epoch"] = json_of(record.epoch);
  row.values["_timestamp"] = json_of(now);
  row.values["_runtime"] = json_of(now - static_cast<double>(start_seconds_));
  row.values["_step"] = std::to_string(row.step);
  take(std::move(row));
}

}  // namespace gputrain::monitor::wandb

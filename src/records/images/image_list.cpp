#include "gputrain/records/image_list.hpp"

#include <algorithm>
#include <array>

#include "../formats/record_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/datasets/image_samples.hpp"
#include "gputrain/datasets/text_file.hpp"

namespace gputrain::records {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kImages{"image", "path", "file", "filename", "file_name", "image_path", "filepath"};
constexpr std::array kLabels{"label", "labels", "class", "class_name", "category", "target", "tag"};

/// Returns the column's name as it is written, for `names` in order of preference; empty: the record has none.
template <size_t count>
std::string column_named(const Json& record, const std::array<const char*, count>& names) {
  for (const char* name : names)
    for (const auto& [column, value] : record.items())
      if (lower_case(column) == name) return column;
  return {};
}

bool is_image(const Json& value) {
  if (value.is_string()) return datasets::is_image_name(value.get_ref<const std::string&>());
  return value.is_binary() || (value.is_object() && value.contains("bytes"));
}

std::string image_column(const Json& record) {
  const std::string named = column_named(record, kImages);
  if (named == "image") return named;  // its names may lack an ending
  for (const auto& [column, value] : record.items())
    if (is_image(value) && (named.empty() || !is_image(record[named]) || column == named)) return column;
  return {};
}

}  // namespace

bool has_records(const std::string& path) { return format_of_file(path) != nullptr; }

std::optional<ImageList> image_list_in(const std::string& path) {
  const RecordFormat* format = format_of_file(path);
  if (format == nullptr || format->name == "conll") return std::nullopt;
  RecordFile file{.path = path, .columns = {}, .keeps_bytes = true};
  file.columns.insert(file.columns.end(), kImages.begin(), kImages.end());
  file.columns.insert(file.columns.end(), kLabels.begin(), kLabels.end());
  std::vector<Record> records;
  try {
    int64_t bytes_left = datasets::kMostTextBytes;
    records = format->read(file, bytes_left);
  } catch (const Error& error) {
    if (format->name == "parquet" && error.code() == ExitCode::data) return std::nullopt;  // it has none of the columns
    throw;
  }
  const auto first = std::ranges::find_if(records, [](const Record& record) { return record.problem.empty(); });
  if (first == records.end()) return std::nullopt;
  ImageList list{.format = format->name, .image = image_column(first->value), .label = {}};
  list.label = column_named(first->value, kLabels);
  return list.image.empty() || list.label.empty() ? std::nullopt : std::optional(list);
}

}  // namespace gputrain::records

#include <algorithm>
#include <string_view>

#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/datasets/parallel_for.hpp"
#include "record_file.hpp"

namespace gputrain::records {
namespace {

using Json = nlohmann::ordered_json;

/// A file that is no JSON lines would else be a thousand bad samples.
void check_kind(const std::string& text, const std::string& path) {
  const FileKind kind = file_kind(text);
  if (kind.type != FileType::unknown && kind.type != FileType::text)
    throw Error(ExitCode::data,
                {.what = std::string(kind.name) + ", not JSON lines", .where = path, .hint = std::string(kind.remedy)});
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) throw Error(ExitCode::data, {.what = "the file is empty", .where = path});
  const std::string_view first = std::string_view(text).substr(begin, text.find('\n', begin) - begin);
  if (first.starts_with('[') || first == "{" || first == "{\r")
    throw Error(ExitCode::data, {.what = "one JSON document, not a JSON object in each line",
                                 .where = path,
                                 .hint = "jq -c '.[]' FILE > FILE.jsonl writes a list as lines"});
}

}  // namespace

std::vector<Record> records_of_json_lines(const std::string& text, const std::string& path) {
  check_kind(text, path);
  std::vector<std::string_view> lines;
  std::vector<Record> records;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    lines.push_back(line);
    records.push_back({.value = {}, .place = path + ":" + std::to_string(number), .problem = {}});
  }
  datasets::parallel_for(lines.size(), [&](size_t i) {
    records[i].value = parse_json<Json>(lines[i]);
    if (!records[i].value.is_object()) records[i].problem = "the line is no JSON object";
  });
  if (std::ranges::all_of(records, [](const Record& record) { return !record.problem.empty(); }))
    throw Error(ExitCode::data, {.what = "no line is a JSON object", .where = path, .hint = R"({"text": "..."})"});
  return records;
}

}  // namespace gputrain::records

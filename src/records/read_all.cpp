#include "read_all.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/datasets/left_out.hpp"
#include "gputrain/datasets/text_file.hpp"

namespace gputrain::records {
namespace {

/// Returns whether it is JSON without records: settings lie beside data.
bool is_other_json(const std::string& path) {
  const size_t dot = path.rfind(".json");
  if (dot == std::string::npos || path.compare(dot, 6, ".jsonl") == 0) return false;
  int64_t bytes_left = datasets::kMostTextBytes;
  const datasets::TextWindow text(path, bytes_left);
  return !is_json_records(text.text(), !text.has_more());
}

/// Lists the files of the format, and warns of those of others.
std::vector<std::string> files_of_folder(const data::DatasetRequest& request, const RecordFormat& format) {
  std::vector<std::string> files;
  datasets::LeftOut others;
  for (const std::string& name : datasets::list_folder(request.path, {}, request.own_folders).files) {
    const RecordFormat* found = format_of_file(name);
    if (found == nullptr) continue;
    const std::string path = (std::filesystem::path(request.path) / name).string();
    if (found == &format && !is_other_json(path)) {
      files.push_back(path);
    } else {
      others.add(name);
    }
  }
  others.warn(request.path, "file", "that are no records of the format " + format.name);
  std::string endings;
  for (const std::string& ending : format.endings) endings += (endings.empty() ? "" : ", ") + ending;
  if (files.empty())
    throw Error(ExitCode::data, {.what = "no file of the format " + format.name + " in this folder",
                                 .where = request.path,
                                 .hint = "names end in " + endings + ", or with .gz or .zst"});
  return files;
}

}  // namespace

std::vector<std::string> record_files(const data::DatasetRequest& request, const RecordFormat& format) {
  std::error_code ignored;
  return std::filesystem::is_directory(request.path, ignored) ? files_of_folder(request, format)
                                                              : datasets::expand_pattern(request.path);
}

AllRecords read_files(const data::DatasetRequest& request, const std::vector<std::string>& files,
                      const RecordFormat& format, RecordFile what) {
  AllRecords all{.records = {}, .files = counted(std::ssize(files), "file")};
  int64_t bytes_left = datasets::kMostTextBytes;
  what.left_out = &all.left_out;
  for (const std::string& path : files) {
    what.path = path;
    std::vector<Record> records = format.read(what, bytes_left);
    if (!records.empty()) all.begins.push_back(all.records.size());
    std::ranges::move(records, std::back_inserter(all.records));
  }
  if (all.records.empty()) throw Error(ExitCode::data, {.what = "there is no record", .where = request.path});
  return all;
}

AllRecords read_all(const data::DatasetRequest& request, const RecordFormat& format, RecordFile what) {
  const std::vector<std::string> files = record_files(request, format);
  request.tell_files(files);
  return read_files(request, files, format, std::move(what));
}

void check_bad(const BadRecords& bad, const data::DatasetRequest& request) {
  if (bad.count == 0) return;
  const std::string count = counted(bad.count, "record") + " of " + grouped(bad.of);
  const bool is_few = static_cast<double>(bad.count) <= request.max_bad_fraction * static_cast<double>(bad.of);
  if (!is_few)
    throw Error(ExitCode::data, {.what = bad.first_what + "; " + count + " cannot be used",
                                 .where = bad.first_where,
                                 .hint = "repair or remove it, or set data.max_bad_fraction to skip a few"});
  log::warning(count + " cannot be used and " + (bad.count == 1 ? "is skipped: " : "are skipped; the first is ") +
               bad.first_where + ": " + bad.first_what);
}

std::string message_of(const Error& error) {
  const Error::Parts& parts = error.parts();
  return parts.what + (parts.hint.empty() ? "" : " (" + parts.hint + ")");
}

}  // namespace gputrain::records

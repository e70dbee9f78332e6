#include "read_all.hpp"

#include <filesystem>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/datasets/text_file.hpp"

namespace gputrain::records {

std::vector<std::string> record_files(const data::DatasetRequest& request, const std::string& extension) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(request.path, ignored)) return datasets::expand_pattern(request.path);
  std::vector<std::string> files =
      datasets::list_folder(request.path, {{"*" + extension, "*" + extension + ".gz"}, {}}, request.own_folders).files;
  if (files.empty())
    throw Error(ExitCode::data, {.what = "no " + extension + " file in this folder", .where = request.path});
  for (std::string& file : files) file = (std::filesystem::path(request.path) / file).string();
  return files;
}

AllRecords read_files(const data::DatasetRequest& request, const std::vector<std::string>& files,
                      ReadRecords read_records, RecordFile what) {
  AllRecords all{.records = {}, .files = counted(std::ssize(files), "file")};
  int64_t bytes_left = datasets::kMostTextBytes;
  what.left_out = &all.left_out;
  for (const std::string& path : files) {
    what.path = path;
    all.begins.push_back(all.records.size());
    for (Record& record : read_records(what, bytes_left)) all.records.push_back(std::move(record));
  }
  if (all.records.empty()) throw Error(ExitCode::data, {.what = "there is no record", .where = request.path});
  return all;
}

AllRecords read_all(const data::DatasetRequest& request, ReadRecords read_records, const std::string& extension,
                    RecordFile what) {
  const std::vector<std::string> files = record_files(request, extension);
  request.tell_files(files);
  return read_files(request, files, read_records, std::move(what));
}

void check_bad(const BadRecords& bad, const data::DatasetRequest& request) {
  if (bad.count == 0) return;
  const std::string count = counted(bad.count, "record") + " of " + grouped(bad.of);
  const bool is_few = static_cast<double>(bad.count) <= request.max_bad_fraction * static_cast<double>(bad.of);
  if (!is_few)
    throw Error(ExitCode::data, {.what = bad.first_what + "; " + count + " cannot be used",
                                 .where = bad.first_where,
                                 .hint = "repair or remove it, or set data.max_bad_fraction to skip a few"});
  log::warning(count + " cannot be used and are skipped; the first is " + bad.first_where + ": " + bad.first_what);
}

std::string message_of(const Error& error) {
  const Error::Parts& parts = error.parts();
  return parts.what + (parts.hint.empty() ? "" : " (" + parts.hint + ")");
}

}  // namespace gputrain::records

// All records of the files of a split.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/record_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/datasets/parallel_for.hpp"

namespace gputrain::records {

struct AllRecords {
  std::vector<Record> records;
  std::string files;                  // "2 files"
  std::vector<size_t> begins;         // first record of each file
  std::vector<std::string> left_out;  // columns that readers have left out
};

/// Returns the files that the request names; for a folder, those of the format.
std::vector<std::string> record_files(const data::DatasetRequest& request, const RecordFormat& format);
/// Reads these files. Throws Error(data), also if there is no record.
AllRecords read_files(const data::DatasetRequest& request, const std::vector<std::string>& files,
                      const RecordFormat& format, RecordFile what);

/// Reads the files that the request names.
AllRecords read_all(const data::DatasetRequest& request, const RecordFormat& format, RecordFile what);

/// Number of records that cannot be used, and the problem of the first of them.
struct BadRecords {
  int64_t count = 0, of = 0;
  std::string first_what, first_where;
};

/// Refuses early what would otherwise end a run in the middle: throws Error(data) if more are bad than
/// data.max_bad_fraction allows, else warns.
void check_bad(const BadRecords& bad, const data::DatasetRequest& request);

/// Returns the message of an error of a record, without its place, which is stored apart.
std::string message_of(const Error& error);

/// Calls `work(i)` for each of `all` whose `problem` is empty, from several threads. A mistake in the data becomes that
/// one's problem; other errors end the whole.
template <class Outcomes, class Work>
void for_each_good(Outcomes&& all, const Work& work) {
  datasets::parallel_for(all.size(), [&](size_t i) {
    if (!all[i].problem.empty()) return;
    try {
      work(i);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      all[i].problem = message_of(error);
    }
  });
}

}  // namespace gputrain::records

#include <algorithm>
#include <filesystem>

#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "record_file.hpp"

namespace gputrain::records {
namespace {

template <auto read>
std::vector<Record> read_file(const RecordFile& file, int64_t& bytes_left) {
  datasets::TextWindow text(file.path, bytes_left);
  return read(text, file);
}

}  // namespace

const std::vector<RecordFormat>& record_formats() {
  static const std::vector<RecordFormat> all{
      {"jsonl", {".jsonl", ".ndjson", ".json"}, read_file<records_of_json>},
      {"csv", {".csv"}, read_file<records_of_csv>},
      {"tsv", {".tsv"}, read_file<records_of_tsv>},
      {"conll", {".conll"}, read_file<records_of_conll>},
      {"parquet", {".parquet"}, records_of_parquet},
  };
  return all;
}

const RecordFormat& format_named(const std::string& name) {
  const auto found = std::ranges::find(record_formats(), name, &RecordFormat::name);
  GPUTRAIN_ASSERT(found != record_formats().end(), "a format of records");
  return *found;
}

const RecordFormat* format_of_file(const std::string& path) {
  const auto ending_of = [](const std::filesystem::path& name) { return lower_case(name.extension().string()); };
  const std::filesystem::path name = std::filesystem::path(path).filename();
  const bool is_packed = ending_of(name) == ".gz" || ending_of(name) == ".zst";
  const std::string ending = ending_of(is_packed ? name.stem() : name);
  const auto found = std::ranges::find_if(record_formats(), [&](const RecordFormat& format) {
    return std::ranges::find(format.endings, ending) != format.endings.end();
  });
  return found == record_formats().end() ? nullptr : &*found;
}

bool is_conll_file(const std::string& path) {
  constexpr size_t kLookedAt = size_t{64} << 10;
  int64_t bytes_left = datasets::kMostTextBytes;
  const datasets::TextWindow text(path, bytes_left);
  const std::string_view all = text.text();
  return is_conll(all.substr(0, kLookedAt), !text.has_more() && all.size() <= kLookedAt);
}

}  // namespace gputrain::records

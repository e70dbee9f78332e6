#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "parquet_rows.hpp"
#include "record_file.hpp"

namespace gputrain::records {
namespace {

/// Opens the library once, and never closes it: the tables of its classes are in it.
const ParquetLibrary& parquet_library() {
  static const void* const found = [] {
    void* opened = ::dlopen("libgputrain_parquet.so", RTLD_NOW | RTLD_LOCAL);
    return opened == nullptr ? nullptr : ::dlsym(opened, "gputrain_parquet");
  }();
  if (found != nullptr) return *static_cast<const ParquetLibrary*>(found);
  const char* reason = ::dlerror();
  throw Error(ExitCode::environment,
              {.what = "this build reads no Parquet files" + (reason == nullptr ? "" : ": " + std::string(reason)),
               .where = "data.train.format: parquet",
               .hint = "./scripts/setup.sh --parquet installs what it needs; then build again"});
}

/// Refuses a file that is no Parquet file, or only the beginning of one.
void check_is_parquet(const std::string& path) {
  constexpr std::string_view kMagic = "PAR1";
  const data::ReadOnlyFile file(path);
  if (file.size() == 0) throw Error(ExitCode::data, {.what = "the file is empty", .where = path});
  std::array<char, kMagic.size()> bytes{};
  const auto is_magic_at = [&](int64_t offset) {
    if (offset < 0 || offset + std::ssize(bytes) > file.size()) return false;
    file.read(offset, std::as_writable_bytes(std::span(bytes)));
    return std::ranges::equal(bytes, kMagic);
  };
  if (!is_magic_at(0)) {
    const FileKind kind = data::kind_of(file);
    throw Error(ExitCode::data,
                {.what = kind.name.empty() ? "no Parquet file; it does not begin with " + std::string(kMagic)
                                           : std::string(kind.name) + ", not a Parquet file",
                 .where = path,
                 .hint = std::string(kind.remedy)});
  }
  if (!is_magic_at(std::max(file.size() - std::ssize(bytes), std::ssize(bytes))))
    throw Error(ExitCode::data, {.what = "the file is cut off: a Parquet file ends with " + std::string(kMagic),
                                 .where = path,
                                 .hint = "copy or download it again"});
}

void choose_columns(ParquetReader& reader, const RecordFile& file) {
  std::vector<std::string> chosen;
  std::string all;
  for (const std::string& name : reader.columns()) {
    all += (all.empty() ? "" : ", ") + name;
    if (std::ranges::find(file.columns, name) == file.columns.end()) {
      if (file.left_out != nullptr) file.left_out->push_back(name);
      continue;
    }
    if (std::ranges::find(chosen, name) != chosen.end())
      throw Error(ExitCode::data, {.what = "two columns are named '" + name + "'", .where = file.path});
    chosen.push_back(name);
  }
  if (chosen.empty())
    throw Error(ExitCode::data, {.what = "no column to learn from; there are " + (all.empty() ? "none" : all),
                                 .where = file.path,
                                 .hint = "data.text.columns or data.image.columns names those to read"});
  reader.choose(chosen);
}

std::vector<Record> rows_of(ParquetReader& reader, const RecordFile& file, int64_t& bytes_left) {
  choose_columns(reader, file);
  std::vector<Record> records;
  for (ParquetRows some = reader.next(); !some.rows.empty(); some = reader.next()) {
    bytes_left -= some.text_bytes;
    if (bytes_left < 0) datasets::throw_too_much_text(file.path);
    for (ParquetRow& row : some.rows) {
      records.push_back({.value = std::move(row.value),
                         .place = file.path + " row " + std::to_string(records.size() + 1),
                         .problem = file.keeps_bytes ? std::string() : std::move(row.problem)});
    }
  }
  return records;
}

}  // namespace

std::vector<Record> records_of_parquet(const RecordFile& file, int64_t& bytes_left) {
  const ParquetLibrary& library = parquet_library();
  check_is_parquet(file.path);
  try {
    return rows_of(*library.open(file.path), file, bytes_left);
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw Error(ExitCode::data, {.what = "the Parquet file cannot be read: " + std::string(error.what()),
                                 .where = file.path,
                                 .hint = "if other programs cannot read it either, copy or download it again"});
  }
}

}  // namespace gputrain::records

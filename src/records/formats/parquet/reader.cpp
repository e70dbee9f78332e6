// libgputrain_parquet.so: reads Parquet files with Arrow, a few rows at a time.
#include <stdexcept>
#include <string>
#include <utility>

#include <arrow/api.h>
#include <arrow/util/utf8.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/properties.h>

#include "../parquet_rows.hpp"
#include "values.hpp"

namespace gputrain::records {
namespace {

/// Rows of a batch: enough to spread its cost, few enough for rows of megabytes.
constexpr int64_t kRowsAtOnce = 512;

[[noreturn]] void fail(std::string message) {
  while (message.ends_with('.') || message.ends_with('\n')) message.pop_back();
  throw std::runtime_error(message);
}

void check(const arrow::Status& status) {
  if (!status.ok()) fail(status.message());
}

template <class Value>
Value value_in(arrow::Result<Value>&& result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

/// Converts exceptions: Arrow reports by Status, and Parquet below it by exceptions.
template <class Work>
auto without_their_exceptions(const Work& work) {
  try {
    return work();
  } catch (const parquet::ParquetException& exception) {
    fail(exception.what());
  }
}

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

class Reader final : public ParquetReader {
 public:
  explicit Reader(const std::string& path) {
    arrow::util::InitializeUTF8();
    parquet::ReaderProperties file(arrow::system_memory_pool());
    file.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_batch_size(kRowsAtOnce);
    properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.OpenFile(path, /*memory_map=*/false, file));
    builder.memory_pool(arrow::system_memory_pool())->properties(properties);
    reader_ = value_in(builder.Build());
  }

  std::vector<std::string> columns() const override {
    std::vector<std::string> names;
    for (const auto& column : reader_->manifest().schema_fields) names.push_back(column.field->name());
    return names;
  }

  void choose(const std::vector<std::string>& columns) override {
    leaves_.clear();
    for (const auto& column : reader_->manifest().schema_fields)
      for (const std::string& name : columns)
        if (column.field->name() == name) add_leaves(column, leaves_);
  }

  ParquetRows next() override {
    return without_their_exceptions([&] {
      while (true) {
        if (batches_ == nullptr && next_group_ == reader_->num_row_groups()) return ParquetRows();
        if (batches_ == nullptr) batches_ = value_in(reader_->GetRecordBatchReader({next_group_++}, leaves_));
        std::shared_ptr<arrow::RecordBatch> batch;
        check(batches_->ReadNext(&batch));
        if (batch != nullptr && batch->num_rows() > 0) return rows_of(*batch);
        if (batch == nullptr) batches_.reset();
      }
    });
  }

 private:
  static ParquetRows rows_of(const arrow::RecordBatch& batch) {
    check(batch.Validate());
    ParquetRows some;
    for (int64_t index = 0; index < batch.num_rows(); ++index) {
      ParquetRow row{.value = nlohmann::ordered_json::object(), .problem = {}};
      for (int column = 0; column < batch.num_columns(); ++column) {
        TextSeen seen;
        row.value[batch.column_name(column)] = value_of(*batch.column(column), index, seen);
        some.text_bytes += seen.bytes;
        if (!seen.is_utf8) row.problem = "'" + batch.column_name(column) + "' is not UTF-8";
      }
      some.rows.push_back(std::move(row));
    }
    return some;
  }

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;  // batches of one row group; reads from reader_
  std::vector<int> leaves_;
  int next_group_ = 0;
};

std::unique_ptr<ParquetReader> open(const std::string& path) {
  return without_their_exceptions([&]() -> std::unique_ptr<ParquetReader> { return std::make_unique<Reader>(path); });
}

}  // namespace
}  // namespace gputrain::records

extern "C" __attribute__((visibility("default"))) const gputrain::records::ParquetLibrary gputrain_parquet;

const gputrain::records::ParquetLibrary gputrain_parquet{.open = gputrain::records::open};

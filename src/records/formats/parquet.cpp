// Parquet files: a record per row.
#include "../samples/samples_of_records.hpp"
#include "gputrain/config/catalog.hpp"

namespace gputrain::records {
namespace {

struct ParquetSpec {
  static void describe(config::Description<ParquetSpec>& d) {
    d.summary(
        "Parquet files with a text or a conversation per row, in the columns that jsonl has as keys; needs a build "
        "after ./scripts/setup.sh --parquet");
  }
};

struct Parquet {
  static std::unique_ptr<data::Dataset> make(const ParquetSpec&, const data::DatasetRequest& request) {
    return samples_of_records(request, format_named("parquet"));
  }
};

const config::Registered<Parquet, ParquetSpec> registered_parquet{data::catalog(), "parquet",
                                                                  "records of texts, or lists of images, one per row"};

}  // namespace
}  // namespace gputrain::records

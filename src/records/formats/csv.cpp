// Tables with a record per row, and cells separated by commas, semicolons or tabs.
#include "../samples/samples_of_records.hpp"
#include "gputrain/config/catalog.hpp"

namespace gputrain::records {
namespace {

struct TableSpec {
  static void describe(config::Description<TableSpec>& d) {
    d.summary("a table whose first row names the columns: text, prompt and completion, or instruction and output");
  }
};

struct Csv {
  static std::unique_ptr<data::Dataset> make(const TableSpec&, const data::DatasetRequest& request) {
    return samples_of_records(request, format_named("csv"));
  }
};

struct Tsv {
  static std::unique_ptr<data::Dataset> make(const TableSpec&, const data::DatasetRequest& request) {
    return samples_of_records(request, format_named("tsv"));
  }
};

const config::Registered<Csv, TableSpec> registered_csv{
    data::catalog(), "csv", "a table with commas between its cells, or semicolons or tabs; quoted cells"};
const config::Registered<Tsv, TableSpec> registered_tsv{data::catalog(), "tsv",
                                                        "a table with tabs between its cells, without quotes"};

}  // namespace
}  // namespace gputrain::records

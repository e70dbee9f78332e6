// Tables with a row per text, separated by commas or tabs.
#include "gputrain/config/catalog.hpp"
#include "record_dataset.hpp"

namespace gputrain::datasets {
namespace {

struct TableSpec {
  static void describe(config::Description<TableSpec>& d) {
    d.summary("a table whose first row names the columns: text, prompt and completion, or instruction and output");
  }
};

std::vector<Record> by_commas(const std::string& text, const std::string& path) {
  return records_of_table(text, path, ',');
}

std::vector<Record> by_tabs(const std::string& text, const std::string& path) {
  return records_of_table(text, path, '\t');
}

struct Csv final : RecordDataset {
  Csv(const TableSpec&, const data::DatasetRequest& request)
      : RecordDataset(open_records(request, by_commas, ".csv")) {}
};

struct Tsv final : RecordDataset {
  Tsv(const TableSpec&, const data::DatasetRequest& request) : RecordDataset(open_records(request, by_tabs, ".tsv")) {}
};

const config::Registered<Csv, TableSpec> registered_csv{data::catalog(), "csv", "a table of texts, with commas"};
const config::Registered<Tsv, TableSpec> registered_tsv{data::catalog(), "tsv", "a table of texts, with tabs"};

}  // namespace
}  // namespace gputrain::datasets

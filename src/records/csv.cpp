// Tables with a row per text, separated by commas or tabs.
#include "gputrain/config/catalog.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "samples_of_records.hpp"

namespace gputrain::records {
namespace {

struct TableSpec {
  static void describe(config::Description<TableSpec>& d) {
    d.summary("a table whose first row names the columns: text, prompt and completion, or instruction and output");
  }
};

template <char separator>
std::vector<Record> separated_by(const RecordFile& file, int64_t& bytes_left) {
  const std::string text = datasets::read_text(file.path, bytes_left);
  bytes_left -= std::ssize(text);
  return records_of_table(text, file, separator);
}

struct Csv final : SamplesByUse {
  Csv(const TableSpec&, const data::DatasetRequest& request)
      : SamplesByUse(samples_of_records(request, separated_by<','>, ".csv")) {}
};

struct Tsv final : SamplesByUse {
  Tsv(const TableSpec&, const data::DatasetRequest& request)
      : SamplesByUse(samples_of_records(request, separated_by<'\t'>, ".tsv")) {}
};

const config::Registered<Csv, TableSpec> registered_csv{data::catalog(), "csv", "a table of texts, with commas"};
const config::Registered<Tsv, TableSpec> registered_tsv{data::catalog(), "tsv", "a table of texts, with tabs"};

}  // namespace
}  // namespace gputrain::records

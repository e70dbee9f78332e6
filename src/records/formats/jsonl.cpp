// Records in JSON: one per line, or per element of a list.
#include "../samples/samples_of_records.hpp"
#include "gputrain/config/catalog.hpp"

namespace gputrain::records {
namespace {

struct JsonLinesSpec {
  static void describe(config::Description<JsonLinesSpec>& d) {
    d.summary(
        "a JSON object per line, or a list of objects, plain, .gz or .zst: {\"text\"}, {\"prompt\", \"completion\"}, "
        "{\"messages\": [{\"role\", "
        "\"content\"}]}, {\"conversations\": [{\"from\", \"value\"}]}, or {\"instruction\", \"input\", \"output\"}");
  }
};

struct JsonLines {
  static std::unique_ptr<data::Dataset> make(const JsonLinesSpec&, const data::DatasetRequest& request) {
    return samples_of_records(request, format_named("jsonl"));
  }
};

const config::Registered<JsonLines, JsonLinesSpec> registered_jsonl{
    data::catalog(), "jsonl", "records of texts, or lists of images, one per line or in a list"};

}  // namespace
}  // namespace gputrain::records

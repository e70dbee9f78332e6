// JSON lines: a record per line.
#include "gputrain/config/catalog.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "samples_of_records.hpp"

namespace gputrain::records {
namespace {

struct JsonLinesSpec {
  static void describe(config::Description<JsonLinesSpec>& d) {
    d.summary(
        "a JSON object per line, plain or .gz: {\"text\"}, {\"prompt\", \"completion\"}, {\"messages\": [{\"role\", "
        "\"content\"}]}, {\"conversations\": [{\"from\", \"value\"}]}, or {\"instruction\", \"input\", \"output\"}");
  }
};

std::vector<Record> by_lines(const RecordFile& file, int64_t& bytes_left) {
  const std::string text = datasets::read_text(file.path, bytes_left);
  bytes_left -= std::ssize(text);
  return records_of_json_lines(text, file.path);
}

struct JsonLines final : SamplesByUse {
  JsonLines(const JsonLinesSpec&, const data::DatasetRequest& request)
      : SamplesByUse(samples_of_records(request, by_lines, ".jsonl")) {}
};

const config::Registered<JsonLines, JsonLinesSpec> registered_jsonl{data::catalog(), "jsonl",
                                                                    "texts and conversations, one per line"};

}  // namespace
}  // namespace gputrain::records

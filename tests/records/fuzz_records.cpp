// Arbitrary bytes as JSON records and as tables, plain, gzip or Zstandard: an error, or records with a place each.
//
//   build/fuzz/tests/records/records_fuzzer -max_total_time=300 CORPUS tests/records/seeds/records
#include "../../src/records/formats/record_file.hpp"
#include "gputrain/datasets/parallel_for.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "support/fuzzed_file.hpp"

namespace gputrain::datasets {
// Without threads, which libFuzzer cannot follow.
void parallel_for(size_t count, const std::function<void(size_t)>& work) {
  for (size_t i = 0; i < count; ++i) work(i);
}
}  // namespace gputrain::datasets

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gputrain::records;
  using namespace gputrain::testing;
  const FuzzedFile file({data, size});
  const auto check = [&](auto read, bool are_numbers) {
    accepts([&] {
      int64_t bytes_left = 1 << 24;
      gputrain::datasets::TextWindow text(file.path(), bytes_left);
      is_json_records(text.text(), !text.has_more());
      for (const Record& record :
           read(text, RecordFile{.path = "f", .columns = {"text", "0"}, .are_numbers = are_numbers})) {
        require(record.place.find(':') != std::string::npos);
        require(record.value.is_object() || !record.problem.empty());
      }
    });
  };
  check(records_of_json, false);
  check(records_of_csv, false);
  check(records_of_tsv, true);
  return 0;
}

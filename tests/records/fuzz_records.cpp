// Arbitrary bytes as JSON lines and as a table: an error, or records with a place each.
//
//   build/fuzz/tests/records/records_fuzzer -max_total_time=300 CORPUS
#include "../../src/records/record_file.hpp"
#include "gputrain/datasets/parallel_for.hpp"
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
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto check = [](const std::vector<Record>& records) {
    for (const Record& record : records) {
      require(record.place.starts_with("f:"));
      require(record.value.is_object() || !record.problem.empty());
    }
  };
  accepts([&] { check(records_of_json_lines(text, "f")); });
  accepts([&] { check(records_of_table(text, {.path = "f", .columns = {}}, ',')); });
  return 0;
}

// Arbitrary bytes as a request to a run's page, and as the answer of one.
//
//   build/fuzz/tests/monitor/http_fuzzer -max_total_time=300 CORPUS
#include <string>

#include "../../src/monitor/http_message.hpp"
#include "support/fuzzed_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gputrain::monitor;
  using gputrain::testing::require;
  const std::string text(reinterpret_cast<const char*>(data), size);
  HttpRequest request;
  if (parse(text, request) == Parsed::whole) require(request.body.size() <= size && !request.path.empty());
  for (const bool is_ended : {false, true}) {
    HttpAnswer answer;
    if (parse(text, is_ended, answer) == Parsed::whole) require(answer.body.size() <= size);
  }
  return 0;
}
